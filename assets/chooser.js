// The chooser of models: draws `props.value.models`, and keeps in `props.value.chosen` what is ticked.
// Text is only ever set as text content, never as HTML.
const holder = element.querySelector('.chooser') || element;
const opened = new Set(); // ids of the panels that are open
const awaited = new Set(); // ids of those whose sizes are being looked up

const make = (tag, attributes = {}, text = '') => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
};

const ticked = () => [...holder.querySelectorAll('input:checked')].map((box) => box.value);

const drawBox = (box, id, label, css) => {
  const whole = make('label', {class: css});
  const input = make('input', {type: 'checkbox', id, value: box.value, 'aria-label': box.title});
  input.checked = props.value.chosen.includes(box.value);
  input.addEventListener('change', () => {
    props.value = {...props.value, chosen: ticked()};
    summarise();
    trigger('choose');
  });
  whole.append(input, make('span', {}, label));
  if (box.hint) whole.title = box.hint;
  for (const small of [box.size, box.dtype].filter(Boolean)) whole.append(make('small', {}, small));
  return whole;
};

// A button that shows and hides a runtime's quantisations, and says which of them are ticked.
const drawPanel = (runtime, id, model) => {
  const panel = make('div', {class: 'files', id, role: 'group', 'aria-label': `${model.name} on ${runtime.title}`});
  const unmeasured = model.here && runtime.boxes.some((box) => !box.size);
  const hint = make('p', {'aria-live': 'polite'});
  const explain = () => {
    if (awaited.has(id)) hint.textContent = 'Looking up the sizes of the files…';
    else if (runtime.boxes.every((box) => box.there)) hint.textContent = '';
    else hint.textContent = 'A file with a dashed frame is made of the checkpoint when it first runs.';
  };
  const button = make('button', {type: 'button', class: 'more', id: `${id}-button`, 'aria-controls': id});
  const show = (open) => {
    panel.hidden = !open;
    button.setAttribute('aria-expanded', open);
    if (open) opened.add(id); else opened.delete(id);
  };
  button.append(make('span', {}, runtime.title), make('small', {class: 'taken'}));
  button.addEventListener('click', () => {
    show(panel.hidden);
    if (!panel.hidden && unmeasured && !awaited.has(id)) {
      awaited.add(id);
      explain();
      trigger('measure', {cell: runtime.boxes[0].value});
    }
  });
  runtime.boxes.forEach((box, index) => {
    const drawn = drawBox(box, `${id}-${index}`, box.label, box.there ? 'file there' : 'file');
    drawn.title = box.there ? 'This file exists.' : 'This file is made of the checkpoint when it first runs.';
    panel.append(drawn);
  });
  if (!unmeasured || props.value.measured === runtime.boxes[0].value) awaited.delete(id);
  explain();
  panel.append(hint);
  show(opened.has(id));
  return [button, panel];
};

const drawModel = (model, index) => {
  const item = make('li', {role: 'group', 'aria-label': model.name});
  const runs = make('span', {class: 'runs'});
  const panels = [];
  model.runtimes.forEach((runtime, number) => {
    const id = `${element.id || 'chooser'}-${index}-${number}`;
    if (runtime.boxes.length === 1) {
      const [box] = runtime.boxes;
      runs.append(drawBox(box, id, [runtime.title, box.label].filter(Boolean).join(' '), 'run'));
    } else {
      const [button, panel] = drawPanel(runtime, id, model);
      runs.append(button);
      panels.push(panel);
    }
  });
  const first = runs.querySelector('input');
  const name = make(first ? 'label' : 'span', {class: 'name', ...(first ? {for: first.id} : {})}, model.name);
  const notes = [model.vocabulary, model.note].filter(Boolean).join(' · ');
  if (notes) name.append(make('small', {}, notes));
  item.append(name, runs, ...panels);
  return item;
};

const summarise = () => holder.querySelectorAll('.more').forEach((button) => {
  const boxes = [...document.getElementById(button.getAttribute('aria-controls')).querySelectorAll('input')];
  const taken = boxes.filter((box) => box.checked).map((box) => box.parentElement.querySelector('span').textContent);
  button.querySelector('.taken').textContent = taken.join(', ');
  button.classList.toggle('some', taken.length > 0);
});

const draw = () => {
  if (!props.value || !props.value.models) return;
  if (props.value.keep) props.value = {...props.value, chosen: ticked(), keep: false};
  const focused = holder.contains(document.activeElement) ? document.activeElement.id : '';
  const list = make('ul', {class: 'choices', role: 'none'}); // its items are groups
  list.append(...props.value.models.map(drawModel));
  holder.replaceChildren(list);
  if (focused) document.getElementById(focused)?.focus();
  if (!props.value.models.length) holder.replaceChildren(make('p', {class: 'muted small'}, 'No model can run here.'));
  summarise();
};

watch('value', draw);
draw();
