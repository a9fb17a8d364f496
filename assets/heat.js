// The heat map: a press on a stage, or on a cell of a candidate, opens it; arrow keys go from stage to stage.
// The Tab key reaches one stage only, the current one.
const stageButtons = () => [...element.querySelectorAll('.heat [data-stage] button')].filter((each) => each.offsetParent);

const setTabStop = (button) => {
  for (const each of element.querySelectorAll('.heat [data-stage] button')) each.tabIndex = each === button ? 0 : -1;
};

const openStage = (row, side) => {
  for (const each of element.querySelectorAll('.heat .opened')) each.classList.remove('opened');
  row.classList.add('opened');
  setTabStop(row.querySelector('button'));
  const data = {stage: row.dataset.stage};
  if (side !== undefined) data.side = side;
  trigger('look', data);
};

element.addEventListener('click', (event) => {
  const row = event.target.closest('[data-stage]');
  if (!row || !element.contains(row)) return;
  openStage(row, event.target.closest('td')?.dataset.side);
});

element.addEventListener('keydown', (event) => {
  const button = event.target.closest('.heat [data-stage] button');
  const buttons = stageButtons();
  const index = buttons.indexOf(button);
  const steps = {ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: buttons.length - 1};
  if (index < 0 || !(event.key in steps)) return;
  event.preventDefault();
  const nextButton = buttons[Math.min(Math.max(steps[event.key], 0), buttons.length - 1)];
  setTabStop(nextButton);
  nextButton.focus();
});

// Scrolls to the stage that the server opened, and lets the Tab key reach it.
watch('value', () => requestAnimationFrame(() => {
  const openedStage = element.querySelector('.heat .opened');
  setTabStop(openedStage?.querySelector('button') || stageButtons()[0]);
  const box = openedStage?.closest('.scroll');
  if (box) box.scrollTop = openedStage.offsetTop - box.clientHeight / 2;
}));
