// Parcels and messages in the format of panels/chat/wire.py: JSON, then sounds, all numbers little-endian.
export const chatUrl = (path) => new URL(`chat/${path}`, document.baseURI);

export const pack = (content, sounds) => {
  const json = new TextEncoder().encode(JSON.stringify(content));
  const size = 4 + json.length + sounds.reduce((sum, sound) => sum + 8 + 2 * sound.samples.length, 0);
  const parcel = new Uint8Array(size);
  const view = new DataView(parcel.buffer);
  view.setUint32(0, json.length, true);
  parcel.set(json, 4);
  let offset = 4 + json.length;
  for (const {rate, samples} of sounds) {
    view.setUint32(offset, rate, true);
    view.setUint32(offset + 4, samples.length, true);
    offset += 8;
    parcel.set(new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength), offset);
    offset += samples.byteLength;
  }
  return parcel;
};

export const unpack = (buffer) => {
  const view = new DataView(buffer);
  const length = view.getUint32(0, true);
  const content = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const sounds = [];
  for (let offset = 4 + length; offset < buffer.byteLength;) {
    const [rate, count] = [view.getUint32(offset, true), view.getUint32(offset + 4, true)];
    sounds.push({rate, samples: new Int16Array(buffer.slice(offset + 8, offset + 8 + 2 * count))});
    offset += 8 + 2 * count;
  }
  return {content, sounds};
};

export class Refused extends Error {}

const UNREACHABLE = 'The server cannot be reached; what you entered is still here. Is it still running?';

// Posts bytes and returns the bytes of the answer; throws `Refused` with the error text of the server.
export const post = async (path, body) => {
  let answer;
  try {
    answer = await fetch(chatUrl(path), {method: 'POST', body});
  } catch {
    throw new Refused(UNREACHABLE);
  }
  const isRefusal = (answer.headers.get('content-type') || '').startsWith('application/json');
  if (isRefusal || !answer.ok) {
    const content = isRefusal ? await answer.json().catch(() => ({})) : {};
    throw new Refused(content.error || `The server answered with ${answer.status}.`);
  }
  return answer.arrayBuffer();
};

// The connection of one turn. `onMessage` gets the JSON messages of the server, {type: 'audio', column, rate, rows,
// samples} for speech, and {type: 'closed', sentence} once at the end; `sentence` is empty unless something failed.
export class Live {
  constructor(parcel, onMessage) {
    this.isClosed = false;
    const finish = (sentence) => {
      if (this.isClosed) return;
      this.isClosed = true;
      onMessage({type: 'closed', sentence});
    };
    const address = chatUrl('live');
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    this.socket = new WebSocket(address);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onopen = () => this.socket.send(parcel);
    this.socket.onclose = () => finish(UNREACHABLE);
    this.socket.onmessage = ({data}) => {
      if (data instanceof ArrayBuffer) {
        const header = new DataView(data);
        onMessage({
          type: 'audio', column: header.getUint32(0, true), rate: header.getUint32(4, true), rows: header.getUint32(8, true),
          samples: new Int16Array(data.slice(12)),
        });
        return;
      }
      const message = JSON.parse(data);
      if (message.type === 'end') finish('');
      else if (message.type === 'refused') finish(message.sentence);
      else onMessage(message);
    };
  }

  stop(column = null) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({type: 'stop', column}));
    else this.socket.close();
  }
}
