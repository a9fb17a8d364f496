// The turn that is being answered: asks the server, takes what comes, and stops it. It draws no conversation.
import {messagesFor} from './history.js';
import {engine} from './sound.js';
import {keepChat} from './store.js';
import {Live, pack} from './wire.js';

const KEEP_EVERY = 1500; // milliseconds between two savings while an answer comes
const LARGEST_TURN = 15 << 20; // bytes that the server takes at once

export class Answering {
  // `page` is the Chat whose turns are answered. `live` is the connection of the turn that is answered now.
  constructor(page) {
    Object.assign(this, {page, live: null});
  }

  // Has a turn answered by all columns, or one of them again.
  answer(index, only = null) {
    const {chat} = this.page;
    const turn = chat.turns[index];
    const columns = only === null ? chat.columns.map((column) => structuredClone(column)) : [only.column];
    const fresh = columns.map((column) => ({column, text: '', sound: null, finish: 'cancelled', answer: null, running: true, state: 'Waiting', pieces: []}));
    if (only === null) turn.answers = fresh;
    else turn.answers[only.index] = fresh[0];
    const sounds = [];
    const asked = fresh.map((answer) => {
      const position = turn.answers.indexOf(answer);
      return {model: answer.column.model, options: answer.column.options,
        messages: messagesFor(chat, index, position, answer.column, this.page.modelOf(answer.column), sounds)};
    });
    engine.stop();
    engine.wake(engine.context?.sampleRate).catch(() => {});
    this.page.draw();
    this.page.thread.scrollTop = this.page.thread.scrollHeight;
    this.page.say('');
    const parcel = pack({columns: asked}, sounds);
    if (parcel.length > LARGEST_TURN) {
      fresh.forEach((answer) => this.fail(answer, 'The conversation holds more than 15 MB of recordings; begin a new chat, or send a shorter one.'));
      return;
    }
    this.begin(parcel, fresh, true);
    this.page.keep();
  }

  // Opens the connection of a turn, and takes what comes.
  begin(parcel, answers, plays) {
    const kept = {at: performance.now()};
    const paces = answers.map(() => ({}));
    const first = {voice: null};
    const live = new Live(parcel, (told) => {
      if (told.type === 'closed') { this.closed(live, answers, told.sentence); return; }
      const answer = answers[told.column];
      const view = this.page.views.get(answer);
      if (told.type === 'audio') this.hear(answer, view, told, paces[told.column], plays && (first.voice ??= answer) === answer);
      else if (told.type === 'text') this.read(answer, told);
      else if (told.type === 'loaded') answer.loaded = told.seconds;
      else if (told.type === 'memory') answer.memory = told.text;
      else if (told.type === 'state') answer.state = told.text === 'answering' ? 'Thinking' : told.text;
      else if (told.type === 'failed') this.fail(answer, told.sentence);
      else if (told.type === 'answer') this.finish(answer, told);
      const low = this.page.thread.scrollHeight - this.page.thread.scrollTop - this.page.thread.clientHeight < 80;
      view?.update();
      if (low) this.page.thread.scrollTop = this.page.thread.scrollHeight;
      if (performance.now() - kept.at > KEEP_EVERY) { kept.at = performance.now(); this.page.keep(); }
    });
    live.chat = this.page.chat;
    this.live = live;
    this.running(true);
  }

  running(now) {
    this.page.root.classList.toggle('answering', now);
    this.page.showModels();
  }

  read(answer, {text, tokens}) {
    if (answer.stopped) return;
    Object.assign(answer, {text: answer.text + text, state: text ? '' : answer.state});
    answer.pieces.push([text, tokens.length]);
  }

  hear(answer, view, {rate, rows, samples}, pace, plays) {
    const now = performance.now() / 1000;
    if (answer.stopped) return;
    if (pace.first === undefined) Object.assign(pace, {first: now, rows, last: now});
    answer.rows = rows;
    answer.state = answer.text && samples.length ? '' : 'Speaking';
    if (!samples.length) return;
    const made = (view?.speech?.length || 0) + samples.length;
    const hop = Math.max(1, made / Math.max(1, rows));  // samples for a row, a little low at first
    const speed = now > pace.first && rows > pace.rows ? ((rows - pace.rows) * hop) / rate / (now - pace.first) : null;
    view?.addSound({rate, samples}, speed, now - pace.last, plays);
    pace.last = now;
    answer.state = '';
  }

  // Puts what an answer has said so far into the conversation that is kept.
  collect(answer) {
    const speech = this.page.views.get(answer)?.speech;
    if (speech?.length) answer.sound = {rate: speech.rate, samples: speech.from()};
  }

  finish(answer, {answer: fields, text, finish}) {
    const view = this.page.views.get(answer);
    const cut = answer.stopped;
    Object.assign(answer, {answer: fields, finish, running: false, state: '', text: cut ? answer.text : text});
    view?.endSound();
    this.collect(answer);
    if (!answer.text && !answer.sound) answer.error = finish === 'cancelled' ? '' : 'The model returned an empty answer; change your message or the settings.';
    if (answer.text) this.page.ear.textContent = `Answer: ${answer.text}`;
  }

  fail(answer, sentence) {
    Object.assign(answer, {running: false, finish: 'failed', error: sentence, state: ''});
    this.page.views.get(answer)?.endSound();
    this.page.views.get(answer)?.update();
  }

  closed(live, answers, sentence) {
    answers.filter((answer) => answer.running).forEach((answer) => {
      if (answer.stopped || !sentence) Object.assign(answer, {running: false, finish: 'cancelled', state: ''});
      else this.fail(answer, sentence);
      this.collect(answer);
      this.page.views.get(answer)?.endSound();
      this.page.views.get(answer)?.update();
    });
    if (this.live === live) {
      this.live = null;
      this.page.showModels();
    }
    // The answer counts as ended when it is kept: a reload finds it again.
    const kept = live.chat === this.page.chat ? this.page.keep() : keepChat(live.chat);
    kept.then(() => { if (!this.live) this.running(false); });
    this.page.restore(answers);
  }

  // Ends the answer at once: the sound here, the work on the server within one row. What was made stays.
  stop() {
    engine.stop();
    if (!this.live) return;
    this.live.stop();
    this.page.chat.turns.forEach((turn) => turn.answers.forEach((answer) => {
      if (!answer?.running) return;
      answer.stopped = true;
      answer.state = 'Stopping';
      this.page.views.get(answer)?.endSound();
      this.page.views.get(answer)?.update();
    }));
  }

  // Has the same answer computed again without playing it, and says whether its ids are the same.
  replay(index, position) {
    if (this.live) return;
    const answer = this.page.chat.turns[index].answers[position];
    const view = this.page.views.get(answer);
    const model = this.page.modelOf(answer.column);
    if (!model) { view.told(`${answer.column.model} is not available on this server, so this answer cannot be replayed.`); return; }
    const known = new Set(model.options.map((option) => option.name));
    const told = Object.entries(answer.answer.settings || {}).filter(([name]) => known.has(name));
    const options = told.length ? Object.fromEntries(told) : answer.column.options;
    const sounds = [];
    const messages = messagesFor(this.page.chat, index, position, answer.column, model, sounds);
    const {token_ids, streams, finish} = answer.answer;
    view.told('Replaying …');
    const copy = {running: true};
    const live = new Live(pack({columns: [{model: answer.column.model, options, messages, recorded: {token_ids, streams, finish}}]}, sounds), (message) => {
      if (message.type === 'answer') {
        copy.done = true;
        const same = message.replay === 'same';
        view.told(same ? 'Replay: the same ids on this machine.' : `Replay differs: ${message.replay}.`, same);
      } else if (message.type === 'failed') {
        copy.done = true;
        view.told(message.sentence);
      } else if (message.type === 'closed') {
        if (!copy.done) view.told(message.sentence || 'The replay was stopped.');
        if (this.live === live) { this.live = null; this.running(false); }
      }
    });
    live.chat = this.page.chat;
    this.live = live;
    this.running(true);
  }
}
