// The editor of segments: draws the rows of `props.value`, and writes every change into `props.value`.
// Text is only ever set as a value or as text content, never as HTML.
const list = element.querySelector('.segments') || element;

const make = (tag, attributes = {}) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// Makes fields as high as their texts. It reads all heights before it changes one: after a change, each read makes the
// browser lay out the page again, and there may be hundreds of fields.
const fitHeights = (areas) => {
  for (const area of areas) area.style.height = 'auto';
  const heights = areas.map((area) => area.scrollHeight);
  areas.forEach((area, index) => { area.style.height = `${heights[index] + 2}px`; });
};

// Returns the seconds in a cell, or NaN where it has no time. The pattern of a time comes from the server, which uses
// the same one.
const parseSeconds = (content) => {
  const pattern = new RegExp(`^(?:${props.value.time})$`);
  const [, hours = 0, minutes = 0, seconds] = pattern.exec(String(content ?? '').trim()) || [];
  return seconds === undefined ? NaN : 3600 * hours + 60 * minutes + Number(String(seconds).replace(',', '.'));
};

const quote = (content) => (String(content ?? '').trim() ? `"${content}"` : 'empty');

// Returns what is wrong with the times of a row, and the columns with wrong values.
const findFault = (row) => {
  if (row.every((cell) => !String(cell ?? '').trim())) return ['', []];  // an empty row is left out
  const [start, end] = row.map(parseSeconds);
  const wrongColumns = [start, end].flatMap((seconds, column) => (Number.isNaN(seconds) ? [column] : []));
  if (wrongColumns.length) {
    const text = wrongColumns.map((column) => `the ${['start', 'end'][column]} is ${quote(row[column])}`).join(', ');
    return [`${text[0].toUpperCase()}${text.slice(1)}; expected seconds such as 1.25, or a time such as 0:01.25`, wrongColumns];
  }
  if (end < start) return ['The end is before the start; expected the end after the start', [1]];
  return ['', []];
};

const checkRow = (item, index) => {
  const [sentence, wrongColumns] = findFault(props.value.rows[index]);
  const note = item.querySelector('.wrong-time');
  if (note.textContent !== sentence) note.textContent = sentence;
  item.querySelectorAll('.moment').forEach((field, column) => {
    if (wrongColumns.includes(column)) field.setAttribute('aria-invalid', 'true');
    else field.removeAttribute('aria-invalid');
  });
};

const changeCell = (index, column, content) => {
  const rows = props.value.rows.map((row) => [...row]);
  rows[index][column] = content;
  props.value = {...props.value, rows};
  publishRows();
};

// Sends the edited rows to the timeline; wrong times are NaN.
const publishRows = () => {
  if (!props.value) return;
  const rows = props.value.rows.map(([start, end, text]) => [parseSeconds(start), parseSeconds(end), String(text ?? '')]);
  document.dispatchEvent(new CustomEvent('segments:shown', {detail: {key: props.value.key, rows}}));
};

// Returns a time with two decimals, or with three where the third is not zero.
const formatTime = (time) => time.toFixed(3).replace(/0$/, '');

// The visitor has moved a border of a segment on the timeline.
document.addEventListener('segments:retime', ({detail}) => {
  if (!element.isConnected || detail.key !== props.value?.key || !props.value.rows[detail.row]) return;
  const [start, end] = props.value.rows[detail.row].map(parseSeconds);
  const item = list.children[detail.row];
  [[start, detail.start], [end, detail.end]].forEach(([oldTime, newTime], column) => {
    if (Math.abs(oldTime - newTime) < 0.0005) return;
    item.querySelectorAll('.moment')[column].value = formatTime(newTime);
    changeCell(detail.row, column, formatTime(newTime));
  });
  checkRow(item, detail.row);
});
document.addEventListener('segments:wanted', () => { if (element.isConnected) publishRows(); });

const drawRow = (row, index) => {
  const item = make('li', {class: 'segment'});
  const number = index + 1;
  const noteId = `${element.id || 'segments'}-note-${index}`;
  const play = make('button', {type: 'button', class: 'play', 'aria-label': `Play segment ${number}`, title: 'Play this segment'});
  play.textContent = '▶';
  play.addEventListener('click', () => {
    const row = props.value.rows[index];
    const [, [column = -1]] = findFault(row);
    if (column >= 0) { item.querySelectorAll('.moment')[column].focus(); return; }
    const [start, end] = row.map(parseSeconds);
    document.dispatchEvent(new CustomEvent('segments:play', {detail: {key: props.value.key, start, end}}));
  });
  item.append(play);
  ['Start', 'End'].forEach((name, column) => {
    const field = make('input', {class: 'moment', 'aria-describedby': noteId, inputmode: 'decimal', autocomplete: 'off',
      'aria-label': `${name} of segment ${number} in seconds`});
    field.value = row[column];
    field.addEventListener('input', () => { changeCell(index, column, field.value); checkRow(item, index); });
    item.append(field);
    if (column === 0) {
      const dash = make('span', {class: 'dash', 'aria-hidden': 'true'});
      dash.textContent = '–';
      item.append(dash);
    }
  });
  const area = make('textarea', {class: 'words', rows: 1, spellcheck: 'false', 'aria-label': `Text of segment ${number}`});
  area.value = row[2];
  area.addEventListener('input', () => { changeCell(index, 2, area.value); fitHeights([area]); checkRow(item, index); });
  item.append(area, make('p', {class: 'wrong-time', id: noteId, role: 'status'}));
  checkRow(item, index);
  return item;
};

const draw = () => {
  const rows = (props.value && props.value.rows) || [];
  list.replaceChildren(...rows.map(drawRow));
  if (props.value && !rows.length) {
    const emptyItem = make('li', {class: 'muted'});
    emptyItem.textContent = 'This transcript has no segments.';
    list.append(emptyItem);
  }
  fitHeights([...list.querySelectorAll('textarea')]);
  publishRows();
};

watch('value', draw);
draw();
