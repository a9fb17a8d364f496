// One answer: its text and speech while they arrive, then the player, its buttons, and its settings and times.
import {copyText, iconButton, make, saveFile, seconds, textButton} from './dom.js';
import {createInsideView} from './inside.js';
import {Speech} from './sound.js';
import {Voice} from './voice.js';

const FINISH = {cancelled: 'Stopped', length: 'Stopped at the length limit', failed: 'Failed'};

export class AnswerView {
  // `actions` has the functions retry and replay; `title` names the model where several models answer.
  constructor(answer, {title, file, actions}) {
    Object.assign(this, {answer, file, actions, openPanel: '', isCompared: Boolean(title)});
    this.textElement = make('p', {class: 'said'});
    this.state = make('p', {class: 'state', role: 'status'});
    this.voiceBox = make('div', {class: 'voice-holder'});
    this.errorElement = make('p', {class: 'fault', role: 'alert'});
    this.tools = make('div', {class: 'tools'});
    this.panel = make('div', {class: 'panel'});
    this.note = make('p', {class: 'replayed', role: 'status'});
    this.root = make('article', {class: 'answer', 'aria-label': title ? `Answer of ${title}` : 'Answer'},
      title ? make('h4', {}, title) : null, this.textElement, this.voiceBox, this.state, this.errorElement, this.tools, this.note, this.panel);
    this.speech = answer.sound ? new Speech(answer.sound.rate, answer.sound.samples) : null;
    if (this.speech) this.createVoice();
    this.update();
  }

  get isRunning() { return Boolean(this.answer.running); }

  createVoice() {
    this.voice = new Voice(this.speech, {file: `${this.file}.wav`, label: 'Answer', onMove: (position, isPlaying) => this.insideView?.follow(position, isPlaying)});
    this.voiceBox.replaceChildren(this.voice.root, this.voice.note);
  }

  // Appends samples to the answer's speech; the first ones start to play if `shouldPlay`.
  addSound({rate, samples}, pace, gap, shouldPlay) {
    const isFirst = !this.speech;
    if (isFirst) {
      this.speech = new Speech(rate, undefined, false);
      this.createVoice();
    }
    this.speech.add(samples, pace, gap);
    if (isFirst && shouldPlay) this.voice.play(0);
    else this.voice.draw();
  }

  endSound() {
    if (!this.speech || this.speech.isComplete) return;
    this.speech.end();
    this.voice.draw();
  }

  update() {
    const {answer} = this;
    if (this.textElement.textContent !== answer.text) this.textElement.textContent = answer.text;
    this.textElement.hidden = !answer.text;
    this.root.classList.toggle('running', this.isRunning);
    this.root.setAttribute('aria-busy', String(this.isRunning));
    this.state.textContent = this.isRunning ? answer.state || 'Waiting' : FINISH[answer.finish] || '';
    this.state.hidden = !this.state.textContent || (this.isRunning && Boolean(answer.text) && !answer.state);
    this.errorElement.textContent = answer.error || '';
    this.errorElement.hidden = !answer.error;
    if (this.isRunning) { this.tools.replaceChildren(); return; }
    this.drawTools();
  }

  drawTools() {
    const {answer} = this;
    const toggle = (name, label, key) => {
      const button = iconButton(name, label, () => this.toggle(key));
      button.setAttribute('aria-expanded', String(this.openPanel === key));
      button.dataset.panel = key;
      return button;
    };
    const copy = iconButton('copy', 'Copy the text', async () => {
      await copyText(answer.text);
      copy.classList.add('done');
      copy.title = 'Copied';
      setTimeout(() => copy.classList.remove('done'), 1500);
    });
    const {first_audio_seconds: firstAudioSeconds, real_time_factor: realTimeFactor, rows_per_second: rowsPerSecond} = answer.answer || {};
    const summary = [
      firstAudioSeconds ? `first sound ${seconds(firstAudioSeconds)}` : '',
      realTimeFactor ? `${(1 / realTimeFactor).toFixed(1)}× real time` : '',
      this.isCompared && rowsPerSecond ? `${rowsPerSecond.toFixed(0)} rows/s` : '',
      this.isCompared && answer.memory ? `${answer.memory} of memory` : '',
      answer.loaded ? `model loaded in ${seconds(answer.loaded)}` : '', // the times of the answer do not include it
    ].filter(Boolean).join(' · ');
    this.tools.replaceChildren(...[
      answer.text ? copy : null,
      iconButton('retry', 'Answer again', () => this.actions.retry()),
      answer.answer?.token_ids?.length ? toggle('look', 'Look inside', 'inside') : null,
      answer.answer ? toggle('about', 'Settings and times', 'figures') : null,
      summary ? make('span', {class: 'glance'}, summary) : null,
    ].filter(Boolean));
  }

  toggle(key) {
    this.openPanel = this.openPanel === key ? '' : key;
    this.insideView = null;
    this.panel.replaceChildren();
    if (this.openPanel === 'figures') this.panel.append(this.figures());
    if (this.openPanel === 'inside') {
      this.insideView = createInsideView(this.answer, this.speech, (position) => this.voice?.play(position));
      this.panel.append(this.insideView.root);
      this.insideView.draw();
    }
    this.drawTools();
    this.tools.querySelector(`[data-panel=${key}]`)?.focus();
  }

  figures() {
    const fields = this.answer.answer;
    const values = [
      ['load', fields.load_seconds ? seconds(fields.load_seconds) : null, 'time to load the model, once; the other times do not include it'],
      ['first text', fields.first_text_seconds === null ? null : seconds(fields.first_text_seconds), 'until the first text'],
      ['first sound', fields.first_audio_seconds === null ? null : seconds(fields.first_audio_seconds), 'until the first samples'],
      ['total', seconds(fields.compute_seconds), 'the whole answer'],
      ['real-time factor', fields.real_time_factor?.toFixed(2), 'compute seconds per second of audio; below 1 is faster than speech'],
      ['audio', fields.audio_seconds ? seconds(fields.audio_seconds) : null, 'length of the speech'],
      ['rows', fields.streams?.length, 'rows of codec tokens'],
      ['rows/s', fields.rows_per_second?.toFixed(0), 'codec rows per second of computing'],
      ['memory', this.answer.memory, 'resident memory of the process after the answer'],
      ['tokens', fields.token_ids?.length, 'of stream 0, markers included'],
      ['prompt', fields.prompt_rows || null, 'positions of the conversation so far'],
      ['ended by', fields.finish, 'stop: the model; length: a limit; cancelled: somebody stopped it'],
    ].filter(([, value]) => value !== null && value !== undefined);
    const list = make('dl', {class: 'figures'}, ...values.map(([name, value, title]) =>
      make('div', {title}, make('dt', {}, name), make('dd', {}, String(value)))));
    const settings = Object.entries(fields.settings || {}).map(([name, value]) =>
      make('div', {}, make('dt', {}, name), make('dd', {}, String(value))));
    const system = this.answer.column.system.trim();
    return make('div', {class: 'about'},
      make('p', {class: 'muted'}, `${fields.model} · ${fields.runtime}${fields.quantization ? ` ${fields.quantization}` : ''}`),
      list, system ? make('p', {class: 'muted'}, `System prompt: ${system}`) : null,
      settings.length ? make('dl', {class: 'given'}, ...settings) : null,
      ...(fields.notes || []).map((note) => make('p', {class: 'note'}, note)),
      make('div', {class: 'actions'},
        textButton('Replay', () => this.actions.replay()),
        textButton('Save as JSON', () => saveFile(`${this.file}.json`,
          new Blob([JSON.stringify(fields, null, 1)], {type: 'application/json'})))));
  }

  // Shows the result of a replay: whether the same model computed the same ids again.
  showReplay(sentence, isSame) {
    this.note.textContent = sentence;
    this.note.classList.toggle('same', Boolean(isSame));
  }
}
