// The report in the Evaluate tab: a frame that can only send messages. This script sizes it, tells it the theme, hands
// it the sound of a recording, and passes on that a recording is to be opened in another tab.
// The tabs that take a recording, of those that this page shows.
const events = ['transcribe', 'parity', 'visualise']
  .filter((key) => document.querySelector(`#tabs button[role="tab"][data-tab-id="${key}"]`));
const HIGHEST = 60000; // pixels of a frame
const dark = () => document.body.classList.contains('dark') || Boolean(document.querySelector('.gradio-container.dark'));
const frameOf = () => element.querySelector('iframe');

const fill = () => {
  const frame = frameOf();
  if (!frame || frame.src) return;
  frame.src = `${frame.dataset.address}#embedded&theme=${dark() ? 'dark' : 'light'}&tabs=${events.join('+')}`;
};

const play = async (frame, key, id) => {
  const answer = await fetch(`evaluate/sound/${key}?id=${encodeURIComponent(id)}`);
  const found = await answer.json().catch(() => ({error: 'The sound cannot be had.'}));
  frame.contentWindow?.postMessage({sound: {id, ...found}}, '*'); // the frame has no origin to name
};

addEventListener('message', (event) => {
  const frame = frameOf();
  if (!frame || event.source !== frame.contentWindow || event.data?.from !== 'workbench-evaluation') return;
  const {height, look, open, id} = event.data;
  const {key} = element.querySelector('[data-key]').dataset;
  if (Number.isFinite(height)) frame.style.height = `${Math.min(Math.max(Math.ceil(height) + 4, 300), HIGHEST)}px`;
  if (typeof look === 'string') play(frame, key, look);
  if (events.includes(open) && typeof id === 'string') {
    trigger(open, {key, id});
    scrollTo(0, 0); // the other tab begins above, where the recording is
  }
});

new MutationObserver(() => frameOf()?.contentWindow?.postMessage({theme: dark() ? 'dark' : 'light'}, '*'))
  .observe(document.body, {attributes: true, attributeFilter: ['class']});
watch('value', () => requestAnimationFrame(fill));
fill();
