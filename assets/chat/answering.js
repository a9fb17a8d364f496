// The turn that is being answered: sends it to the server, handles the events, and stops it. It draws no conversation.
import {messagesBefore} from './history.js';
import {engine} from './sound.js';
import {saveChat} from './store.js';
import {Live, pack} from './wire.js';

const SAVE_INTERVAL = 1500; // milliseconds; how often the chat is saved while an answer arrives
const MAX_TURN_BYTES = 15 << 20; // the server accepts no larger request

export class Answering {
  // `page` is the Chat whose turns are answered; `live` is the connection of the current turn, or null.
  constructor(page) {
    Object.assign(this, {page, live: null});
  }

  // Asks the models of all columns to answer a turn. With `replacement`, asks one model again: {column: its settings,
  // index: which answer it replaces}.
  answer(index, replacement = null) {
    const {chat} = this.page;
    const turn = chat.turns[index];
    const columns = replacement === null ? chat.columns.map((column) => structuredClone(column)) : [replacement.column];
    const newAnswers = columns.map((column) => ({column, text: '', sound: null, finish: 'cancelled', answer: null, running: true, state: 'Waiting', pieces: []}));
    if (replacement === null) turn.answers = newAnswers;
    else turn.answers[replacement.index] = newAnswers[0];
    const sounds = [];
    const requests = newAnswers.map((answer) => {
      const position = turn.answers.indexOf(answer);
      return {model: answer.column.model, options: answer.column.options,
        messages: messagesBefore(chat, index, position, answer.column, this.page.modelOf(answer.column), sounds)};
    });
    engine.stop();
    engine.wake(engine.context?.sampleRate).catch(() => {});
    this.page.draw();
    this.page.thread.scrollTop = this.page.thread.scrollHeight;
    this.page.showNotice('');
    const parcel = pack({columns: requests}, sounds);
    if (parcel.length > MAX_TURN_BYTES) {
      newAnswers.forEach((answer) => this.fail(answer, 'The conversation holds more than 15 MB of recordings; begin a new chat, or send a shorter one.'));
      return;
    }
    this.begin(parcel, newAnswers, true);
    this.page.save();
  }

  // Opens the connection of a turn, and handles its events.
  begin(parcel, answers, shouldPlay) {
    const lastSave = {time: performance.now()};
    const paces = answers.map(() => ({}));
    const firstSpeaker = {answer: null};
    const live = new Live(parcel, (message) => {
      if (message.type === 'closed') { this.handleClose(live, answers, message.sentence); return; }
      const answer = answers[message.column];
      const view = this.page.views.get(answer);
      if (message.type === 'audio') this.addSpeech(answer, view, message, paces[message.column], shouldPlay && (firstSpeaker.answer ??= answer) === answer);
      else if (message.type === 'text') this.addText(answer, message);
      else if (message.type === 'loaded') answer.loaded = message.seconds;
      else if (message.type === 'memory') answer.memory = message.text;
      else if (message.type === 'state') answer.state = message.text === 'answering' ? 'Thinking' : message.text;
      else if (message.type === 'failed') this.fail(answer, message.sentence);
      else if (message.type === 'answer') this.finish(answer, message);
      const isAtBottom = this.page.thread.scrollHeight - this.page.thread.scrollTop - this.page.thread.clientHeight < 80;
      view?.update();
      if (isAtBottom) this.page.thread.scrollTop = this.page.thread.scrollHeight;
      if (performance.now() - lastSave.time > SAVE_INTERVAL) { lastSave.time = performance.now(); this.page.save(); }
    });
    live.chat = this.page.chat;
    this.live = live;
    this.setRunning(true);
  }

  setRunning(isRunning) {
    this.page.root.classList.toggle('answering', isRunning);
    this.page.showModels();
  }

  addText(answer, {text, tokens}) {
    if (answer.stopped) return;
    Object.assign(answer, {text: answer.text + text, state: text ? '' : answer.state});
    answer.pieces.push([text, tokens.length]);
  }

  addSpeech(answer, view, {rate, rows, samples}, pace, shouldPlay) {
    const time = performance.now() / 1000;
    if (answer.stopped) return;
    if (pace.first === undefined) Object.assign(pace, {first: time, rows, last: time});
    answer.rows = rows;
    answer.state = answer.text && samples.length ? '' : 'Speaking';
    if (!samples.length) return;
    const sampleCount = (view?.speech?.length || 0) + samples.length;
    const samplesPerRow = Math.max(1, sampleCount / Math.max(1, rows)); // an estimate, a little too low at first
    const speed = time > pace.first && rows > pace.rows ? ((rows - pace.rows) * samplesPerRow) / rate / (time - pace.first) : null;
    view?.addSound({rate, samples}, speed, time - pace.last, shouldPlay);
    pace.last = time;
    answer.state = '';
  }

  // Copies the speech that has arrived into the answer, so that it is saved with the conversation.
  storeSound(answer) {
    const speech = this.page.views.get(answer)?.speech;
    if (speech?.length) answer.sound = {rate: speech.rate, samples: speech.samplesFrom()};
  }

  finish(answer, {answer: fields, text, finish}) {
    const view = this.page.views.get(answer);
    const wasStopped = answer.stopped;
    Object.assign(answer, {answer: fields, finish, running: false, state: '', text: wasStopped ? answer.text : text});
    view?.endSound();
    this.storeSound(answer);
    if (!answer.text && !answer.sound) answer.error = finish === 'cancelled' ? '' : 'The model returned an empty answer; change your message or the settings.';
    if (answer.text) this.page.announcer.textContent = `Answer: ${answer.text}`;
  }

  fail(answer, sentence) {
    Object.assign(answer, {running: false, finish: 'failed', error: sentence, state: ''});
    this.page.views.get(answer)?.endSound();
    this.page.views.get(answer)?.update();
  }

  handleClose(live, answers, sentence) {
    answers.filter((answer) => answer.running).forEach((answer) => {
      if (answer.stopped || !sentence) Object.assign(answer, {running: false, finish: 'cancelled', state: ''});
      else this.fail(answer, sentence);
      this.storeSound(answer);
      this.page.views.get(answer)?.endSound();
      this.page.views.get(answer)?.update();
    });
    if (this.live === live) {
      this.live = null;
      this.page.showModels();
    }
    // The page shows the answer as ended only after it is saved, so that a reload finds it.
    this.saveChatOf(live).then(() => { if (!this.live) this.setRunning(false); });
    this.page.restoreTurn(answers);
  }

  // Saves the chat of a connection, unless it was deleted meanwhile.
  async saveChatOf({chat}) {
    if (chat === this.page.chat) await this.page.save();
    else if (this.page.chats.includes(chat)) await saveChat(chat);
  }

  // Stops the answer: the sound at once, the server within one row. The text and speech so far stay.
  stop() {
    engine.stop();
    if (!this.live) return;
    this.live.stop();
    this.page.chat.turns.forEach((turn) => turn.answers.forEach((answer) => {
      if (!answer?.running) return;
      answer.stopped = true;
      answer.state = 'Stopping';
      this.storeSound(answer); // its view may be gone before the server has stopped
      this.page.views.get(answer)?.endSound();
      this.page.views.get(answer)?.update();
    }));
  }

  // Asks the server to compute the same answer again, without playing it, and shows whether its ids are the same.
  replay(index, position) {
    if (this.live) return;
    const answer = this.page.chat.turns[index].answers[position];
    const view = this.page.views.get(answer);
    const model = this.page.modelOf(answer.column);
    if (!model) { view.showReplay(`${answer.column.model} is not available on this server, so this answer cannot be replayed.`); return; }
    const optionNames = new Set(model.options.map((option) => option.name));
    const settings = Object.entries(answer.answer.settings || {}).filter(([name]) => optionNames.has(name));
    const options = settings.length ? Object.fromEntries(settings) : answer.column.options;
    const sounds = [];
    const messages = messagesBefore(this.page.chat, index, position, answer.column, model, sounds);
    const {token_ids, streams, finish} = answer.answer;
    view.showReplay('Replaying …');
    const replay = {running: true};
    const live = new Live(pack({columns: [{model: answer.column.model, options, messages, recorded: {token_ids, streams, finish}}]}, sounds), (message) => {
      if (message.type === 'answer') {
        replay.isDone = true;
        const isSame = message.replay === 'same';
        view.showReplay(isSame ? 'Replay: the same ids on this machine.' : `Replay differs: ${message.replay}.`, isSame);
      } else if (message.type === 'failed') {
        replay.isDone = true;
        view.showReplay(message.sentence);
      } else if (message.type === 'closed') {
        if (!replay.isDone) view.showReplay(message.sentence || 'The replay was stopped.');
        if (this.live === live) { this.live = null; this.setRunning(false); }
      }
    });
    live.chat = this.page.chat;
    this.live = live;
    this.setRunning(true);
  }
}
