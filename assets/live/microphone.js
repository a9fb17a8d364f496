// The microphone and its connection to the server: 100 ms of sound at a time, and events back. It draws nothing.
export const place = (path) => new URL(path, document.baseURI);

// Why there is no microphone, and how to get one; empty where there is one.
export const noMicrophone = () => {
  if (navigator.mediaDevices && window.AudioWorkletNode) return '';
  if (!window.isSecureContext) {
    return 'The browser gives the microphone only to secure pages. Open this page as http://localhost on the machine that runs it '
      + '(from another one: ssh -L 7860:localhost:7860 that-machine), or serve it by https.';
  }
  return 'This browser gives no microphone to pages; try another one, or record a file.';
};

const LATEST = 64; // chunks that may wait to be sent; more are more than six seconds behind

// `hear` gets each chunk and its level, 0 to 1; `tell` each event of the server, and {type: 'closed'} once.
export class Microphone {
  // With `echo`, the browser takes the page's own sound out of the microphone's.
  constructor({request, hear, tell, echo = false}) {
    Object.assign(this, {request, hear, tell, echo, paused: false, behind: false, sent: 0});
  }

  async start() {
    const plain = {echoCancellation: this.echo, noiseSuppression: false, autoGainControl: false}; // as recognisers were trained
    this.stream = await navigator.mediaDevices.getUserMedia({audio: {channelCount: 1, ...plain}});
    try {
      this.context = new AudioContext({sampleRate: 16000});
      this.input = this.context.createMediaStreamSource(this.stream);
    } catch { // a browser that does not resample a microphone
      this.context = new AudioContext();
      this.input = this.context.createMediaStreamSource(this.stream);
    }
    await this.context.audioWorklet.addModule(place('live/scripts/worklet.js'));
    await this.connect();
    const node = new AudioWorkletNode(this.context, 'live-recorder', {numberOfOutputs: 0});
    node.port.onmessage = ({data}) => this.take(data);
    this.input.connect(node);
  }

  get rate() { return this.context.sampleRate; }

  connect() {
    const address = place('live/listen');
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    this.socket = new WebSocket(address);
    return new Promise((resolve, reject) => {
      this.socket.onopen = () => {
        this.socket.send(JSON.stringify({...this.request, rate: Math.round(this.rate)}));
        resolve();
      };
      this.socket.onmessage = ({data}) => this.tell(JSON.parse(data));
      this.socket.onclose = () => { this.tell({type: 'closed'}); reject(new Error('The server cannot be reached. Is it still running?')); };
    });
  }

  take(samples) {
    if (this.paused) return;
    this.hear(samples, Math.min(1, 3 * Math.sqrt(samples.reduce((sum, value) => sum + (value / 32768) ** 2, 0) / samples.length)));
    if (this.socket.readyState !== WebSocket.OPEN) return;
    this.behind = this.socket.bufferedAmount > LATEST * samples.byteLength;
    this.socket.send(samples);
    this.sent += samples.length;
  }

  pause(now) {
    this.paused = now;
    this.stream.getAudioTracks().forEach((track) => { track.enabled = !now; });
    if (now && this.socket.readyState === WebSocket.OPEN) this.socket.send('{"type": "commit"}');
  }

  // Ends the sound; the server tells what is final, and then `end`.
  async stop() {
    this.paused = true;
    this.stream?.getTracks().forEach((track) => track.stop());
    await this.context?.close().catch(() => {});
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send('{"type": "stop"}');
  }

  async cancel() {
    await this.stop();
    this.socket?.close();
  }
}
