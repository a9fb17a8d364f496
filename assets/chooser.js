// The chooser of models: draws `props.value.models`, and writes the ticked boxes into `props.value.chosen`.
// Text is only ever set as text content, never as HTML.
const holder = element.querySelector('.chooser') || element;
const openPanels = new Set(); // ids of the panels that are open
const pendingPanels = new Set(); // ids of the panels whose file sizes are being looked up

const make = (tag, attributes = {}, text = '') => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
};

const tickedValues = () => [...holder.querySelectorAll('input:checked')].map((box) => box.value);

const drawBox = (box, id, label, css) => {
  const labelElement = make('label', {class: css});
  const input = make('input', {type: 'checkbox', id, value: box.value, 'aria-label': box.title});
  input.checked = props.value.chosen.includes(box.value);
  input.addEventListener('change', () => {
    props.value = {...props.value, chosen: tickedValues()};
    summarise();
    trigger('choose');
  });
  labelElement.append(input, make('span', {}, label));
  if (box.hint) labelElement.title = box.hint;
  for (const detail of [box.size, box.dtype].filter(Boolean)) labelElement.append(make('small', {}, detail));
  return labelElement;
};

// Returns a button and the panel of quantisations that it opens; the button shows which of them are ticked.
const drawPanel = (runtime, id, model) => {
  const panel = make('div', {class: 'files', id, role: 'group', 'aria-label': `${model.name} on ${runtime.title}`});
  const hasUnknownSizes = model.here && runtime.boxes.some((box) => !box.size);
  const hint = make('p', {'aria-live': 'polite'});
  const showHint = () => {
    if (pendingPanels.has(id)) hint.textContent = 'Looking up the sizes of the files…';
    else if (runtime.boxes.every((box) => box.there)) hint.textContent = '';
    else hint.textContent = 'A file with a dashed frame is made of the checkpoint when it first runs.';
  };
  const button = make('button', {type: 'button', class: 'more', id: `${id}-button`, 'aria-controls': id});
  const setOpen = (isOpen) => {
    panel.hidden = !isOpen;
    button.setAttribute('aria-expanded', isOpen);
    if (isOpen) openPanels.add(id); else openPanels.delete(id);
  };
  button.append(make('span', {}, runtime.title), make('small', {class: 'taken'}));
  button.addEventListener('click', () => {
    setOpen(panel.hidden);
    if (!panel.hidden && hasUnknownSizes && !pendingPanels.has(id)) {
      pendingPanels.add(id);
      showHint();
      trigger('measure', {cell: runtime.boxes[0].value});
    }
  });
  runtime.boxes.forEach((box, index) => {
    const label = drawBox(box, `${id}-${index}`, box.label, box.there ? 'file there' : 'file');
    label.title = box.there ? 'This file exists.' : 'This file is made of the checkpoint when it first runs.';
    panel.append(label);
  });
  if (!hasUnknownSizes || props.value.measured === runtime.boxes[0].value) pendingPanels.delete(id);
  showHint();
  panel.append(hint);
  setOpen(openPanels.has(id));
  return [button, panel];
};

const drawModel = (model, index) => {
  const item = make('li', {role: 'group', 'aria-label': model.name});
  const runs = make('span', {class: 'runs'});
  const panels = [];
  model.runtimes.forEach((runtime, runtimeIndex) => {
    const id = `${element.id || 'chooser'}-${index}-${runtimeIndex}`;
    if (runtime.boxes.length === 1) {
      const [box] = runtime.boxes;
      runs.append(drawBox(box, id, [runtime.title, box.label].filter(Boolean).join(' '), 'run'));
    } else {
      const [button, panel] = drawPanel(runtime, id, model);
      runs.append(button);
      panels.push(panel);
    }
  });
  const firstInput = runs.querySelector('input');
  const name = make(firstInput ? 'label' : 'span', {class: 'name', ...(firstInput ? {for: firstInput.id} : {})}, model.name);
  const notes = [model.vocabulary, model.note].filter(Boolean).join(' · ');
  if (notes) name.append(make('small', {}, notes));
  item.append(name, runs, ...panels);
  return item;
};

const summarise = () => holder.querySelectorAll('.more').forEach((button) => {
  const boxes = [...document.getElementById(button.getAttribute('aria-controls')).querySelectorAll('input')];
  const tickedLabels = boxes.filter((box) => box.checked).map((box) => box.parentElement.querySelector('span').textContent);
  button.querySelector('.taken').textContent = tickedLabels.join(', ');
  button.classList.toggle('some', tickedLabels.length > 0);
});

const draw = () => {
  if (!props.value || !props.value.models) return;
  if (props.value.keep) props.value = {...props.value, chosen: tickedValues(), keep: false};
  const focusedId = holder.contains(document.activeElement) ? document.activeElement.id : '';
  const list = make('ul', {class: 'choices', role: 'none'}); // its items are groups
  list.append(...props.value.models.map(drawModel));
  holder.replaceChildren(list);
  if (focusedId) document.getElementById(focusedId)?.focus();
  if (!props.value.models.length) holder.replaceChildren(make('p', {class: 'muted small'}, 'No model can run here.'));
  summarise();
};

watch('value', draw);
draw();
