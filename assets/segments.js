// The editor of segments: draws the rows of `props.value`, and writes every change back into it.
// Text is only ever set as a value or as text content, never as HTML.
const list = element.querySelector('.segments') || element;

const make = (tag, attributes = {}) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

// Makes fields as high as their texts. All are read before one is changed: the browser lays out the page anew when it is
// asked for a height after a change, once for each of hundreds of fields.
const grow = (areas) => {
  for (const area of areas) area.style.height = 'auto';
  const heights = areas.map((area) => area.scrollHeight);
  areas.forEach((area, index) => { area.style.height = `${heights[index] + 2}px`; });
};

// Seconds that a cell holds; NaN for what is no time. The form of a time comes from the server, which reads it too.
const secondsIn = (content) => {
  const form = new RegExp(`^(?:${props.value.time})$`);
  const [, hours = 0, minutes = 0, seconds] = form.exec(String(content ?? '').trim()) || [];
  return seconds === undefined ? NaN : 3600 * hours + 60 * minutes + Number(String(seconds).replace(',', '.'));
};

const named = (content) => (String(content ?? '').trim() ? `"${content}"` : 'empty');

// What is wrong with the times of a row, and the columns that it is wrong in.
const faultIn = (row) => {
  if (row.every((cell) => !String(cell ?? '').trim())) return ['', []];  // an empty row is left out
  const [start, end] = row.map(secondsIn);
  const wrong = [start, end].flatMap((moment, column) => (Number.isNaN(moment) ? [column] : []));
  if (wrong.length) {
    const said = wrong.map((column) => `the ${['start', 'end'][column]} is ${named(row[column])}`).join(', ');
    return [`${said[0].toUpperCase()}${said.slice(1)}; expected seconds such as 1.25, or a time such as 0:01.25`, wrong];
  }
  if (end < start) return ['The end is before the start; expected the end after the start', [1]];
  return ['', []];
};

const check = (item, index) => {
  const [sentence, wrong] = faultIn(props.value.rows[index]);
  const note = item.querySelector('.wrong-time');
  if (note.textContent !== sentence) note.textContent = sentence;
  item.querySelectorAll('.moment').forEach((field, column) => {
    if (wrong.includes(column)) field.setAttribute('aria-invalid', 'true');
    else field.removeAttribute('aria-invalid');
  });
};

const change = (index, column, content) => {
  const rows = props.value.rows.map((row) => [...row]);
  rows[index][column] = content;
  props.value = {...props.value, rows};
  tell();
};

// The timeline shows the segments as they are edited; times that are none are NaN there.
const tell = () => {
  if (!props.value) return;
  const rows = props.value.rows.map(([start, end, text]) => [secondsIn(start), secondsIn(end), String(text ?? '')]);
  document.dispatchEvent(new CustomEvent('segments:shown', {detail: {key: props.value.key, rows}}));
};

// A time as the editor writes it: two decimals, or three where they are needed.
const written = (time) => time.toFixed(3).replace(/0$/, '');

// A border of a segment was moved on the timeline.
document.addEventListener('segments:retime', ({detail}) => {
  if (!element.isConnected || detail.key !== props.value?.key || !props.value.rows[detail.row]) return;
  const [start, end] = props.value.rows[detail.row].map(secondsIn);
  const item = list.children[detail.row];
  [[start, detail.start], [end, detail.end]].forEach(([before, now], column) => {
    if (Math.abs(before - now) < 0.0005) return;
    item.querySelectorAll('.moment')[column].value = written(now);
    change(detail.row, column, written(now));
  });
  check(item, detail.row);
});
document.addEventListener('segments:wanted', () => { if (element.isConnected) tell(); });

const drawRow = (row, index) => {
  const item = make('li', {class: 'segment'});
  const number = index + 1;
  const noteId = `${element.id || 'segments'}-note-${index}`;
  const play = make('button', {type: 'button', class: 'play', 'aria-label': `Play segment ${number}`, title: 'Play this segment'});
  play.textContent = '▶';
  play.addEventListener('click', () => {
    const row = props.value.rows[index];
    const [, [column = -1]] = faultIn(row);
    if (column >= 0) { item.querySelectorAll('.moment')[column].focus(); return; }
    const [start, end] = row.map(secondsIn);
    document.dispatchEvent(new CustomEvent('segments:play', {detail: {key: props.value.key, start, end}}));
  });
  item.append(play);
  ['Start', 'End'].forEach((name, column) => {
    const field = make('input', {class: 'moment', 'aria-describedby': noteId, inputmode: 'decimal', autocomplete: 'off',
      'aria-label': `${name} of segment ${number} in seconds`});
    field.value = row[column];
    field.addEventListener('input', () => { change(index, column, field.value); check(item, index); });
    item.append(field);
    if (column === 0) {
      const dash = make('span', {class: 'dash', 'aria-hidden': 'true'});
      dash.textContent = '–';
      item.append(dash);
    }
  });
  const area = make('textarea', {class: 'words', rows: 1, spellcheck: 'false', 'aria-label': `Text of segment ${number}`});
  area.value = row[2];
  area.addEventListener('input', () => { change(index, 2, area.value); grow([area]); check(item, index); });
  item.append(area, make('p', {class: 'wrong-time', id: noteId, role: 'status'}));
  check(item, index);
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
  grow([...list.querySelectorAll('textarea')]);
  tell();
};

watch('value', draw);
draw();
