// The conversations, kept in this browser (IndexedDB), so that they survive a reload and no other visitor sees them.
const NAME = 'speech-workbench-chats';
const MOST_CHATS = 40;
const MOST_BYTES = 96 << 20; // of sounds in all conversations; the oldest go first

let opened;
const database = () => {
  opened ||= new Promise((resolve, reject) => {
    const asked = indexedDB.open(NAME, 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore('chats', {keyPath: 'id'});
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  return opened;
};

const ask = async (mode, work) => {
  const held = await database();
  return new Promise((resolve, reject) => {
    const transaction = held.transaction('chats', mode);
    const asked = work(transaction.objectStore('chats'));
    transaction.oncomplete = () => resolve(asked.result);
    transaction.onabort = () => reject(transaction.error);
  });
};

const bytes = (chat) => chat.turns.reduce((sum, turn) => sum + [turn.user, ...turn.answers].reduce(
  (inner, each) => inner + (each?.sound ? each.sound.samples.byteLength : 0), 0), 0);

// All conversations, the newest first; an empty list where the browser keeps nothing (a private window, say).
export const allChats = async () => {
  try {
    return (await ask('readonly', (store) => store.getAll())).sort((a, b) => b.changed - a.changed);
  } catch {
    return [];
  }
};

export const keepChat = async (chat) => {
  try {
    await ask('readwrite', (store) => store.put(chat));
  } catch {
    return 'This browser does not keep the conversation; save it as a file before you leave.';
  }
  return '';
};

export const dropChat = (id) => ask('readwrite', (store) => store.delete(id)).catch(() => {});

// Drops the oldest conversations beyond the bounds; returns those that stay.
export const trimChats = async (chats) => {
  let size = 0;
  const kept = chats.filter((chat, index) => {
    size += bytes(chat);
    return index === 0 || (index < MOST_CHATS && size <= MOST_BYTES);
  });
  await Promise.all(chats.filter((chat) => !kept.includes(chat)).map((chat) => dropChat(chat.id)));
  return kept;
};

// Small choices of the visitor: which conversation is open, and the settings of the last one.
export const remember = (name, value) => {
  try { localStorage.setItem(`${NAME}-${name}`, JSON.stringify(value)); } catch { /* a browser that keeps nothing */ }
};
export const recall = (name) => {
  try { return JSON.parse(localStorage.getItem(`${NAME}-${name}`)); } catch { return null; }
};
