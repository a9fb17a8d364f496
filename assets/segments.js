// The editor of segments: draws the rows of `props.value`, and writes every change back into it.
// Text is only ever set as a value or as text content, never as HTML.
const list = element.querySelector('.segments') || element;

const make = (tag, attributes = {}) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

const grow = (area) => {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + 2}px`;
};

const change = (index, column, content) => {
  const rows = props.value.rows.map((row) => [...row]);
  rows[index][column] = content;
  props.value = {...props.value, rows};
};

const drawRow = (row, index) => {
  const item = make('li', {class: 'segment'});
  const number = index + 1;
  const play = make('button', {type: 'button', class: 'play', 'aria-label': `Play segment ${number}`, title: 'Play this segment'});
  play.textContent = '▶';
  play.addEventListener('click', () => trigger('play', {index}));
  item.append(play);
  ['Start', 'End'].forEach((name, column) => {
    const field = make('input', {class: 'moment', inputmode: 'decimal', autocomplete: 'off',
      'aria-label': `${name} of segment ${number} in seconds`});
    field.value = row[column];
    field.addEventListener('input', () => change(index, column, field.value));
    item.append(field);
    if (column === 0) {
      const dash = make('span', {class: 'dash', 'aria-hidden': 'true'});
      dash.textContent = '–';
      item.append(dash);
    }
  });
  const area = make('textarea', {class: 'words', rows: 1, spellcheck: 'false', 'aria-label': `Text of segment ${number}`});
  area.value = row[2];
  area.addEventListener('input', () => { change(index, 2, area.value); grow(area); });
  item.append(area);
  return item;
};

const draw = () => {
  const rows = (props.value && props.value.rows) || [];
  list.replaceChildren(...rows.map(drawRow));
  if (props.value && !rows.length) {
    const none = make('li', {class: 'muted'});
    none.textContent = 'This transcript has no segments.';
    list.append(none);
  }
  list.querySelectorAll('textarea').forEach(grow);
};

watch('value', draw);
draw();
