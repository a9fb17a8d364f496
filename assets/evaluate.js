// The report in the Evaluate tab: a sandboxed frame that can only send messages. This script sets its height, sends it
// the theme and the sound of a recording, and opens a recording in another tab.

// The tabs of this page that can open a recording.
const tabs = ['transcribe', 'parity', 'visualise']
  .filter((key) => document.querySelector(`#tabs button[role="tab"][data-tab-id="${key}"]`));
const MAX_HEIGHT = 60000; // pixels of a frame
const isDark = () => document.body.classList.contains('dark') || Boolean(document.querySelector('.gradio-container.dark'));
const frameOf = () => element.querySelector('iframe');

const loadFrame = () => {
  const frame = frameOf();
  if (!frame || frame.src) return;
  frame.src = `${frame.dataset.address}#embedded&theme=${isDark() ? 'dark' : 'light'}&tabs=${tabs.join('+')}`;
};

const sendSound = async (frame, key, id) => {
  const answer = await fetch(`evaluate/sound/${key}?id=${encodeURIComponent(id)}`);
  const sound = await answer.json().catch(() => ({error: 'The sound cannot be had.'}));
  frame.contentWindow?.postMessage({sound: {id, ...sound}}, '*'); // a sandboxed frame has no origin
};

addEventListener('message', (event) => {
  const frame = frameOf();
  if (!frame || event.source !== frame.contentWindow || event.data?.from !== 'workbench-evaluation') return;
  const {height, look: soundId, open: tab, id} = event.data;
  const {key} = element.querySelector('[data-key]').dataset;
  if (Number.isFinite(height)) frame.style.height = `${Math.min(Math.max(Math.ceil(height) + 4, 300), MAX_HEIGHT)}px`;
  if (typeof soundId === 'string') sendSound(frame, key, soundId);
  if (tabs.includes(tab) && typeof id === 'string') {
    trigger(tab, {key, id});
    scrollTo(0, 0); // the recording is at the top of the other tab
  }
});

new MutationObserver(() => frameOf()?.contentWindow?.postMessage({theme: isDark() ? 'dark' : 'light'}, '*'))
  .observe(document.body, {attributes: true, attributeFilter: ['class']});
watch('value', () => requestAnimationFrame(loadFrame));
loadFrame();
