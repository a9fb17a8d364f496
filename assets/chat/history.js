// A conversation as the server takes it: plain messages, and the sounds that they name by number.
// A chat is {id, title, created, changed, columns, turns}; see workbench/speech/chat_form.py for columns and turns.

// The messages that lead to an answer of a turn, for a column: its settings say the model and the system prompt.
export const messagesFor = (chat, turn, index, column, model, sounds) => {
  const messages = [];
  if (column.system.trim()) messages.push({role: 'system', content: column.system.trim()});
  chat.turns.slice(0, turn).forEach((earlier) => {
    const answer = earlier.answers[index] || earlier.answers.find(Boolean);
    const said = answer && assistant(answer, column, model, sounds);
    if (said) messages.push(user(earlier.user, sounds), said);
  });
  messages.push(user(chat.turns[turn].user, sounds));
  return messages;
};

const sent = (sound, sounds) => {
  const found = sounds.indexOf(sound);
  return found >= 0 ? found : sounds.push(sound) - 1;
};

const user = ({text, sound}, sounds) => {
  if (!sound) return {role: 'user', content: text};
  const parts = [{type: 'audio', sound: sent(sound, sounds)}];
  if (text.trim()) parts.push({type: 'text', text});
  return {role: 'user', content: parts};
};

// What the model said before: its text, and its speech as the very codec tokens where the same model made them.
const assistant = (answer, column, model, sounds) => {
  const parts = [];
  if (answer.text) parts.push({type: 'text', text: answer.text});
  const streams = answer.answer?.streams;
  if (model?.speaks) {
    if (streams?.length && sameModel(answer.column.model, column.model)) parts.push({type: 'audio', streams});
    else if (answer.sound?.samples.length) parts.push({type: 'audio', sound: sent(answer.sound, sounds)});
  }
  return parts.length ? {role: 'assistant', content: parts} : null;
};

const sameModel = (one, other) => one.split('|')[0] === other.split('|')[0];

// The conversation as a parcel for a replay bundle: sounds by number.
export const forBundle = (chat) => {
  const sounds = [];
  const numbered = (each) => ({...each, sound: each.sound?.samples.length ? sent(each.sound, sounds) : null});
  const turns = chat.turns.map((turn) => ({
    user: {text: turn.user.text, ...numbered({sound: turn.user.sound})},
    answers: turn.answers.map((answer) => answer && {
      column: answer.column, text: answer.text, finish: answer.finish, error: answer.error || '',
      pieces: answer.pieces || [], answer: answer.answer || null, ...numbered({sound: answer.sound}),
    }),
  }));
  return [{title: chat.title, created: chat.created, columns: chat.columns, turns}, sounds];
};

export const fromBundle = (content, sounds) => {
  const heard = (number) => (number === null || number === undefined ? null : sounds[number]);
  return {
    ...content, id: crypto.randomUUID?.() || String(Date.now() + Math.random()), changed: Date.now(), bundle: true,
    turns: content.turns.map((turn) => ({
      user: {text: turn.user.text, sound: heard(turn.user.sound)},
      answers: turn.answers.map((answer) => answer && {...answer, sound: heard(answer.sound)}),
    })),
  };
};
