// The conversations, kept in this browser (IndexedDB), so that they survive a reload and no other visitor sees them.
const NAME = 'speech-workbench-chats';
const MAX_CHATS = 40;
const MAX_BYTES = 96 << 20; // of the sounds of all conversations; the oldest conversations are deleted first

let connection;
const database = () => {
  connection ||= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore('chats', {keyPath: 'id'});
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return connection;
};

const runTransaction = async (mode, makeRequest) => {
  const openedDatabase = await database();
  return new Promise((resolve, reject) => {
    const transaction = openedDatabase.transaction('chats', mode);
    const request = makeRequest(transaction.objectStore('chats'));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = () => reject(transaction.error);
  });
};

const soundBytes = (chat) => chat.turns.reduce((sum, turn) => sum + [turn.user, ...turn.answers].reduce(
  (inner, each) => inner + (each?.sound ? each.sound.samples.byteLength : 0), 0), 0);

const areObjects = (values) => Array.isArray(values) && values.every((value) => value && typeof value === 'object');

// Returns whether these are the columns of a conversation; a page of another version may have stored something else.
export const areColumns = (columns) => areObjects(columns) && columns.length > 0
  && columns.every((column) => areObjects([column.options]) && [column.model, column.system].every((text) => typeof text === 'string'));

const isChat = ({title, columns, turns}) => typeof title === 'string' && areColumns(columns) && areObjects(turns)
  && turns.every(({user, answers}) => areObjects([user]) && Array.isArray(answers)
    && answers.every((answer) => !answer || (typeof answer.text === 'string' && areColumns([answer.column]))));

// Returns all conversations that this page can show, the newest first; an empty list where the browser stores nothing,
// as in a private window.
export const allChats = async () => {
  try {
    return (await runTransaction('readonly', (store) => store.getAll())).filter(isChat).sort((a, b) => b.changed - a.changed);
  } catch {
    return [];
  }
};

export const saveChat = async (chat) => {
  try {
    await runTransaction('readwrite', (store) => store.put(chat));
  } catch {
    return 'This browser does not keep the conversation; save it as a file before you leave.';
  }
  return '';
};

export const deleteChat = (id) => runTransaction('readwrite', (store) => store.delete(id)).catch(() => {});

// Deletes the oldest conversations above the limits; returns the others.
export const trimChats = async (chats) => {
  let size = 0;
  const remaining = chats.filter((chat, index) => {
    size += soundBytes(chat);
    return index === 0 || (index < MAX_CHATS && size <= MAX_BYTES);
  });
  await Promise.all(chats.filter((chat) => !remaining.includes(chat)).map((chat) => deleteChat(chat.id)));
  return remaining;
};

// Settings of the visitor: which conversation is open, and the columns of the last one.
export const saveSetting = (name, value) => {
  try { localStorage.setItem(`${NAME}-${name}`, JSON.stringify(value)); } catch { /* a browser that keeps nothing */ }
};
export const loadSetting = (name) => {
  try { return JSON.parse(localStorage.getItem(`${NAME}-${name}`)); } catch { return null; }
};
