// Parcels and chunks as panels/chat/wire.py has them: JSON with sounds behind it, all numbers little-endian.
export const place = (path) => new URL(`chat/${path}`, document.baseURI);

export const pack = (content, sounds) => {
  const written = new TextEncoder().encode(JSON.stringify(content));
  const size = 4 + written.length + sounds.reduce((sum, sound) => sum + 8 + 2 * sound.samples.length, 0);
  const parcel = new Uint8Array(size);
  const view = new DataView(parcel.buffer);
  view.setUint32(0, written.length, true);
  parcel.set(written, 4);
  let at = 4 + written.length;
  for (const {rate, samples} of sounds) {
    view.setUint32(at, rate, true);
    view.setUint32(at + 4, samples.length, true);
    at += 8;
    parcel.set(new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength), at);
    at += samples.byteLength;
  }
  return parcel;
};

export const unpack = (buffer) => {
  const view = new DataView(buffer);
  const length = view.getUint32(0, true);
  const content = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const sounds = [];
  for (let at = 4 + length; at < buffer.byteLength;) {
    const [rate, count] = [view.getUint32(at, true), view.getUint32(at + 4, true)];
    sounds.push({rate, samples: new Int16Array(buffer.slice(at + 8, at + 8 + 2 * count))});
    at += 8 + 2 * count;
  }
  return {content, sounds};
};

export class Refused extends Error {}

const GONE = 'The server cannot be reached; what you entered is still here. Is it still running?';

// Posts bytes and returns the answer's bytes; throws `Refused` with the server's sentence.
export const post = async (path, body) => {
  let answer;
  try {
    answer = await fetch(place(path), {method: 'POST', body});
  } catch {
    throw new Refused(GONE);
  }
  const refused = (answer.headers.get('content-type') || '').startsWith('application/json');
  if (refused || !answer.ok) {
    const told = refused ? await answer.json().catch(() => ({})) : {};
    throw new Refused(told.error || `The server answered with ${answer.status}.`);
  }
  return answer.arrayBuffer();
};

// One turn on the server. `tell` gets each message of it: objects, or {type: 'audio', column, rate, rows, samples}.
export class Live {
  constructor(parcel, tell) {
    this.ended = false;
    const end = (sentence) => {
      if (this.ended) return;
      this.ended = true;
      tell({type: 'closed', sentence});
    };
    const address = place('live');
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    this.socket = new WebSocket(address);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onopen = () => this.socket.send(parcel);
    this.socket.onclose = () => end(GONE);
    this.socket.onmessage = ({data}) => {
      if (data instanceof ArrayBuffer) {
        const head = new DataView(data);
        tell({
          type: 'audio', column: head.getUint32(0, true), rate: head.getUint32(4, true), rows: head.getUint32(8, true),
          samples: new Int16Array(data.slice(12)),
        });
        return;
      }
      const told = JSON.parse(data);
      if (told.type === 'end') end('');
      else if (told.type === 'refused') end(told.sentence);
      else tell(told);
    };
  }

  stop(column = null) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({type: 'stop', column}));
    else this.socket.close();
  }
}
