// The keyboard of the timeline. Keys work while an element of it has the focus, except in fields that use them.
export const SHORTCUTS = [
  ['Space', 'play or pause'],
  ['J  K  L', 'back 3 s · pause · play, then faster'],
  ['← →', '1 s; with Shift 0.1 s, with Ctrl 10 s'],
  ['↑ ↓', 'segment before, segment after'],
  ['Home End', 'begin, end'],
  ['+ −', 'zoom in, zoom out'],
  ['0', 'the whole recording'],
  ['I  O', 'a loop begins here, ends here'],
  ['R', 'loop on or off'],
  ['Esc', 'no loop'],
];

// Runs the action of a key on `timeline`; returns whether the key has one.
export const pressed = (event, timeline) => {
  const {link, sound} = timeline;
  if (!link || event.altKey || event.metaKey || event.target.closest('input, textarea')) return false;
  const field = event.target.closest('button, select, summary');
  if (field && (event.key === ' ' || event.key === 'Enter' || field.localName === 'select')) return false;
  const step = event.ctrlKey ? 10 : event.shiftKey ? 0.1 : 1;
  const action = {
    ' ': () => sound.toggle(),
    k: () => { sound.pause(); timeline.setSpeed(1); },
    j: () => { sound.seek(link.cursor - 3); if (!link.playing) sound.play(); },
    l: () => (link.playing ? timeline.faster() : sound.play()),
    ArrowLeft: () => sound.seek(link.cursor - step),
    ArrowRight: () => sound.seek(link.cursor + step),
    ArrowUp: () => timeline.toSegment(-1),
    ArrowDown: () => timeline.toSegment(1),
    Home: () => sound.seek(0),
    End: () => sound.seek(link.seconds),
    '+': () => link.zoom(0.5),
    '=': () => link.zoom(0.5),
    '-': () => link.zoom(2),
    0: () => link.show(0, link.seconds),
    i: () => timeline.setLoop(link.cursor, link.stretch ? link.stretch[1] : link.seconds),
    o: () => timeline.setLoop(link.stretch ? link.stretch[0] : 0, link.cursor),
    r: () => timeline.toggleLoop(),
    Escape: () => link.set({stretch: null, loop: false}),
  }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action || (event.ctrlKey && !event.key.startsWith('Arrow'))) return false;
  action();
  return true;
};
