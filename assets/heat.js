// The heat map: a press on a stage, or on a cell of a candidate, opens it; arrow keys go from stage to stage.
// One stage at a time can be reached with the tab key.
const names = () => [...element.querySelectorAll('.heat [data-stage] button')].filter((each) => each.offsetParent);

const only = (button) => {
  for (const each of element.querySelectorAll('.heat [data-stage] button')) each.tabIndex = each === button ? 0 : -1;
};

const open = (row, side) => {
  for (const each of element.querySelectorAll('.heat .opened')) each.classList.remove('opened');
  row.classList.add('opened');
  only(row.querySelector('button'));
  const data = {stage: row.dataset.stage};
  if (side !== undefined) data.side = side;
  trigger('look', data);
};

element.addEventListener('click', (event) => {
  const row = event.target.closest('[data-stage]');
  if (!row || !element.contains(row)) return;
  open(row, event.target.closest('td')?.dataset.side);
});

element.addEventListener('keydown', (event) => {
  const held = event.target.closest('.heat [data-stage] button');
  const all = names();
  const here = all.indexOf(held);
  const steps = {ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: all.length - 1};
  if (here < 0 || !(event.key in steps)) return;
  event.preventDefault();
  const next = all[Math.min(Math.max(steps[event.key], 0), all.length - 1)];
  only(next);
  next.focus();
});

// What comes opened is brought into sight, and is what the tab key reaches.
watch('value', () => requestAnimationFrame(() => {
  const opened = element.querySelector('.heat .opened');
  only(opened?.querySelector('button') || names()[0]);
  const box = opened?.closest('.scroll');
  if (box) box.scrollTop = opened.offsetTop - box.clientHeight / 2;
}));
