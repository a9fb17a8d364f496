// Converts a conversation to what the server reads: messages, and the sounds that they name by number.
// A chat is {id, title, created, changed, columns, turns}; see workbench/speech/chat_form.py for columns and turns.

// Returns the messages of a conversation up to a turn, for the model and the system prompt of a column. A model that
// does not remember gets the turn alone.
export const messagesBefore = (chat, turn, index, column, model, sounds) => {
  const messages = [];
  if (column.system.trim()) messages.push({role: 'system', content: column.system.trim()});
  chat.turns.slice(model?.remembers === false ? turn : 0, turn).forEach((earlier) => {
    const answer = earlier.answers[index] || earlier.answers.find(Boolean);
    const message = answer && assistantMessage(answer, column, model, sounds);
    if (message) messages.push(userMessage(earlier.user, sounds), message);
  });
  messages.push(userMessage(chat.turns[turn].user, sounds));
  return messages;
};

const soundNumber = (sound, sounds) => {
  const index = sounds.indexOf(sound);
  return index >= 0 ? index : sounds.push(sound) - 1;
};

const userMessage = ({text, sound}, sounds) => {
  if (!sound) return {role: 'user', content: text};
  const parts = [{type: 'audio', sound: soundNumber(sound, sounds)}];
  if (text.trim()) parts.push({type: 'text', text});
  return {role: 'user', content: parts};
};

// Returns an earlier answer: its text, and its speech as codec tokens if the same model made it, else as samples;
// in the order in which the model generated them.
const assistantMessage = (answer, column, model, sounds) => {
  const parts = [];
  if (answer.text) parts.push({type: 'text', text: answer.text});
  const streams = answer.answer?.streams;
  if (model?.speaks) {
    if (streams?.length && sameModel(answer.column.model, column.model)) parts.push({type: 'audio', streams});
    else if (answer.sound?.samples.length) parts.push({type: 'audio', sound: soundNumber(answer.sound, sounds)});
  }
  const {layout, token_ids: ids} = answer.answer ?? {};
  const first = layout && ids?.find((id) => id === layout.text || id === layout.audio);
  if (parts.length > 1 && layout && first === layout.audio) parts.reverse();
  return parts.length ? {role: 'assistant', content: parts} : null;
};

const sameModel = (first, second) => first.split('|')[0] === second.split('|')[0];

// Returns the conversation for a replay bundle, and its sounds, which it names by number.
export const forBundle = (chat) => {
  const sounds = [];
  const numberSound = (each) => ({...each, sound: each.sound?.samples.length ? soundNumber(each.sound, sounds) : null});
  const turns = chat.turns.map((turn) => ({
    user: {text: turn.user.text, ...numberSound({sound: turn.user.sound})},
    answers: turn.answers.map((answer) => answer && {
      column: answer.column, text: answer.text, finish: answer.finish, error: answer.error || '',
      pieces: answer.pieces || [], answer: answer.answer || null, ...numberSound({sound: answer.sound}),
    }),
  }));
  return [{title: chat.title, created: chat.created, columns: chat.columns, turns}, sounds];
};

export const fromBundle = (content, sounds) => {
  const soundOf = (number) => (number === null || number === undefined ? null : sounds[number]);
  return {
    ...content, id: crypto.randomUUID?.() || String(Date.now() + Math.random()), changed: Date.now(), bundle: true,
    turns: content.turns.map((turn) => ({
      user: {text: turn.user.text, sound: soundOf(turn.user.sound)},
      answers: turn.answers.map((answer) => answer && {...answer, sound: soundOf(answer.sound)}),
    })),
  };
};
