// One answer: its text and speech while they come, then the player, what can be done with it, and its figures.
import {copyText, iconButton, make, saveFile, seconds, textButton} from './dom.js';
import {inside} from './inside.js';
import {Speech} from './sound.js';
import {Voice} from './voice.js';

const FINISH = {cancelled: 'Stopped', length: 'Stopped at the length limit', failed: 'Failed'};

export class AnswerView {
  // `does` has the functions retry and replay; `title` names the model where several answer.
  constructor(answer, {title, file, does}) {
    Object.assign(this, {answer, file, does, opened: '', compared: Boolean(title)});
    this.words = make('p', {class: 'said'});
    this.state = make('p', {class: 'state', role: 'status'});
    this.holder = make('div', {class: 'voice-holder'});
    this.fault = make('p', {class: 'fault', role: 'alert'});
    this.tools = make('div', {class: 'tools'});
    this.panel = make('div', {class: 'panel'});
    this.note = make('p', {class: 'replayed', role: 'status'});
    this.root = make('article', {class: 'answer', 'aria-label': title ? `Answer of ${title}` : 'Answer'},
      title ? make('h4', {}, title) : null, this.words, this.holder, this.state, this.fault, this.tools, this.note, this.panel);
    this.speech = answer.sound ? new Speech(answer.sound.rate, answer.sound.samples) : null;
    if (this.speech) this.voiceFor();
    this.update();
  }

  get running() { return Boolean(this.answer.running); }

  voiceFor() {
    this.voice = new Voice(this.speech, {file: `${this.file}.wav`, label: 'Answer', moved: (at, playing) => this.inside?.follow(at, playing)});
    this.holder.replaceChildren(this.voice.root, this.voice.note);
  }

  // More of the answer's speech; the first of it starts to play unless something else has been told to.
  addSound({rate, samples}, pace, gap, plays) {
    const first = !this.speech;
    if (first) {
      this.speech = new Speech(rate, undefined, false);
      this.voiceFor();
    }
    this.speech.add(samples, pace, gap);
    if (first && plays) this.voice.play(0);
    else this.voice.draw();
  }

  endSound() {
    if (!this.speech || this.speech.done) return;
    this.speech.end();
    this.voice.draw();
  }

  update() {
    const {answer} = this;
    if (this.words.textContent !== answer.text) this.words.textContent = answer.text;
    this.words.hidden = !answer.text;
    this.root.classList.toggle('running', this.running);
    this.root.setAttribute('aria-busy', String(this.running));
    this.state.textContent = this.running ? answer.state || 'Waiting' : FINISH[answer.finish] || '';
    this.state.hidden = !this.state.textContent || (this.running && Boolean(answer.text) && !answer.state);
    this.fault.textContent = answer.error || '';
    this.fault.hidden = !answer.error;
    if (this.running) { this.tools.replaceChildren(); return; }
    this.drawTools();
  }

  drawTools() {
    const {answer} = this;
    const toggle = (name, label, key) => {
      const button = iconButton(name, label, () => this.toggle(key));
      button.setAttribute('aria-expanded', String(this.opened === key));
      button.dataset.panel = key;
      return button;
    };
    const copy = iconButton('copy', 'Copy the text', async () => {
      await copyText(answer.text);
      copy.classList.add('done');
      copy.title = 'Copied';
      setTimeout(() => copy.classList.remove('done'), 1500);
    });
    const {first_audio_seconds: first, real_time_factor: factor, rows_per_second: rows} = answer.answer || {};
    const glance = [
      first ? `first sound ${seconds(first)}` : '',
      factor ? `${(1 / factor).toFixed(1)}× real time` : '',
      this.compared && rows ? `${rows.toFixed(0)} rows/s` : '',
      this.compared && answer.memory ? `${answer.memory} of memory` : '',
      answer.loaded ? `model loaded in ${seconds(answer.loaded)}` : '', // before the times of the answer begin
    ].filter(Boolean).join(' · ');
    this.tools.replaceChildren(...[
      answer.text ? copy : null,
      iconButton('retry', 'Answer again', () => this.does.retry()),
      answer.answer?.token_ids?.length ? toggle('look', 'Look inside', 'inside') : null,
      answer.answer ? toggle('about', 'Settings and times', 'figures') : null,
      glance ? make('span', {class: 'glance'}, glance) : null,
    ].filter(Boolean));
  }

  toggle(key) {
    this.opened = this.opened === key ? '' : key;
    this.inside = null;
    this.panel.replaceChildren();
    if (this.opened === 'figures') this.panel.append(this.figures());
    if (this.opened === 'inside') {
      this.inside = inside(this.answer, this.speech, (position) => this.voice?.play(position));
      this.panel.append(this.inside.root);
      this.inside.draw();
    }
    this.drawTools();
    this.tools.querySelector(`[data-panel=${key}]`)?.focus();
  }

  figures() {
    const told = this.answer.answer;
    const values = [
      ['load', told.load_seconds ? seconds(told.load_seconds) : null, 'time to load the model, once; the other times do not include it'],
      ['first text', told.first_text_seconds === null ? null : seconds(told.first_text_seconds), 'until the first text'],
      ['first sound', told.first_audio_seconds === null ? null : seconds(told.first_audio_seconds), 'until the first samples'],
      ['total', seconds(told.compute_seconds), 'the whole answer'],
      ['real-time factor', told.real_time_factor?.toFixed(2), 'compute seconds per second of audio; below 1 is faster than speech'],
      ['audio', told.audio_seconds ? seconds(told.audio_seconds) : null, 'length of the speech'],
      ['rows', told.streams?.length, 'rows of codec tokens'],
      ['rows/s', told.rows_per_second?.toFixed(0), 'codec rows per second of computing'],
      ['memory', this.answer.memory, 'resident memory of the process after the answer'],
      ['tokens', told.token_ids?.length, 'of stream 0, markers included'],
      ['prompt', told.prompt_rows || null, 'positions of the conversation so far'],
      ['ended by', told.finish, 'stop: the model; length: a limit; cancelled: somebody stopped it'],
    ].filter(([, value]) => value !== null && value !== undefined);
    const list = make('dl', {class: 'figures'}, ...values.map(([name, value, title]) =>
      make('div', {title}, make('dt', {}, name), make('dd', {}, String(value)))));
    const settings = Object.entries(told.settings || {}).map(([name, value]) =>
      make('div', {}, make('dt', {}, name), make('dd', {}, String(value))));
    const system = this.answer.column.system.trim();
    return make('div', {class: 'about'},
      make('p', {class: 'muted'}, `${told.model} · ${told.runtime}${told.quantization ? ` ${told.quantization}` : ''}`),
      list, system ? make('p', {class: 'muted'}, `System prompt: ${system}`) : null,
      settings.length ? make('dl', {class: 'given'}, ...settings) : null,
      ...(told.notes || []).map((note) => make('p', {class: 'note'}, note)),
      make('div', {class: 'actions'},
        textButton('Replay', () => this.does.replay()),
        textButton('Save as JSON', () => saveFile(`${this.file}.json`,
          new Blob([JSON.stringify(told, null, 1)], {type: 'application/json'})))));
  }

  // Says whether the same model gave the same ids again.
  told(sentence, good) {
    this.note.textContent = sentence;
    this.note.classList.toggle('same', Boolean(good));
  }
}
