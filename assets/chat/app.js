// The Chat tab: conversations and what a visitor can do with them.
import {AnswerView} from './answer.js';
import {Answering} from './answering.js';
import {Composer} from './composer.js';
import {iconButton, make, saveFile, textButton} from './dom.js';
import {forBundle, fromBundle} from './history.js';
import {Settings} from './settings.js';
import {Speech, engine} from './sound.js';
import {allChats, dropChat, keepChat, recall, remember, trimChats} from './store.js';
import {ByVoice} from './talking.js';
import {Voice} from './voice.js';
import {pack, place, post, unpack} from './wire.js';

const WIDE = 1000; // pixels from which the list and the settings stand beside the conversation

const identity = () => crypto.randomUUID?.() || `${Date.now()}-${Math.random()}`;

class Chat {
  constructor(element) {
    this.element = element;
    Object.assign(this, {offer: {models: [], samples: []}, chats: [], chat: null, views: new Map(), undo: null});
    Object.assign(this, {answering: new Answering(this), byVoice: new ByVoice(this)});
    this.composer = new Composer({
      send: (turn) => this.ask(turn), stop: () => this.answering.stop(), open: (file) => this.openBundle(file), talk: () => this.byVoice.toggle(),
      say: (sentence, kind) => this.say(sentence, kind),
    });
    this.settings = new Settings(() => this.settingsChanged(), () => this.toggleSide('settings', false));
    this.notice = make('p', {class: 'notice', role: 'status'});
    this.ear = make('p', {class: 'sr', 'aria-live': 'polite'});
    this.thread = make('div', {class: 'thread', tabindex: 0, role: 'log', 'aria-live': 'off', 'aria-label': 'Conversation'});
    this.title = make('span', {class: 'chat-model'});
    this.list = make('ul', {class: 'chats'});
    this.side = make('nav', {class: 'side', 'aria-label': 'Conversations'},
      make('header', {}, textButton('New chat', () => this.newChat(), 'quiet new', 'plus'),
        iconButton('close', 'Close the list', () => this.toggleSide('list', false))), this.list,
      make('p', {class: 'muted small'}, 'Kept in this browser only.'));
    this.bar = make('header', {class: 'topbar'},
      iconButton('menu', 'Conversations', () => this.toggleSide('list'), 'open-list'), this.title,
      iconButton('plus', 'New chat', () => this.newChat(), 'new-chat'),
      iconButton('save', 'Save as a replay bundle', () => this.saveBundle(), 'save-chat'),
      iconButton('tune', 'Settings', () => this.toggleSide('settings'), 'open-settings'));
    this.root = make('div', {class: 'chat'}, this.side,
      make('section', {class: 'middle', 'aria-label': 'Chat'}, this.bar, this.thread, this.notice, this.composer.root, this.ear),
      this.settings.root);
    this.listen();
  }

  listen() {
    const middle = this.root.querySelector('.middle');
    middle.addEventListener('dragover', (event) => { event.preventDefault(); middle.classList.add('dropping'); });
    middle.addEventListener('dragleave', (event) => { if (!middle.contains(event.relatedTarget)) middle.classList.remove('dropping'); });
    middle.addEventListener('drop', (event) => {
      event.preventDefault();
      middle.classList.remove('dropping');
      this.composer.take(event.dataTransfer.files[0]);
    });
    this.root.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      if (this.composer.recording) this.composer.finish(false, true);
      else if (this.answering.live || engine.now) this.answering.stop();
      else if (innerWidth < WIDE) { this.toggleSide('list', false); this.toggleSide('settings', false); }
    });
    engine.watchers.add(({played, missed, level}) => {  // what is heard right now
      Object.assign(this.root.dataset, {played, missed: missed ?? this.root.dataset.missed, level: level.toFixed(4)});
    });
    const fit = () => {
      const top = this.root.getBoundingClientRect().top + scrollY;
      this.root.style.setProperty('--top', `${Math.round(top)}px`);
    };
    new ResizeObserver(fit).observe(document.body);
    const tab = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      fit();
      this.composer.fit();
      this.look();
    });
    tab.observe(this.root);
  }

  // Models and conversations.

  async start() {
    this.chats = await trimChats(await allChats());
    await this.look();
    this.element.replaceChildren(this.root); // now that something can be sent to somebody
    const open = this.chats.find((chat) => chat.id === recall('open'));
    if (open) this.show(open);
    else this.newChat();
    const wide = innerWidth >= WIDE;
    this.toggleSide('list', wide && this.chats.length > 0);
    this.toggleSide('settings', wide && innerWidth >= 1200);
    this.root.dataset.ready = 'yes';
  }

  // Asks what the server offers now; a model may have been downloaded since.
  async look() {
    try {
      this.offer = await (await fetch(place('offer'))).json();
    } catch {
      this.say('The server cannot be reached; reload the page.');
      return;
    }
    if (!this.chat) return;
    this.fitColumns(this.chat);
    this.showSettings();
    if (!this.chat.turns.length) this.draw();
  }

  usual() {
    const last = recall('columns');
    if (Array.isArray(last) && last.length) return structuredClone(last);
    return [{model: this.offer.models[0]?.value || '', system: '', options: {}}];
  }

  // A column whose model is not offered here gets the first that is; a bundle keeps the name of its own.
  fitColumns(chat) {
    const known = new Set(this.offer.models.map((model) => model.value));
    chat.columns.forEach((column) => {
      if (!known.has(column.model) && this.offer.models.length) Object.assign(column, {model: this.offer.models[0].value, options: {}});
    });
  }

  newChat() {
    if (this.answering.live) this.answering.stop();
    this.toggleSide('list', innerWidth >= WIDE && this.root.classList.contains('with-list'));
    const chat = {id: identity(), title: '', created: new Date().toISOString(), changed: Date.now(), columns: this.usual(), turns: []};
    this.show(chat);
    this.composer.area.focus({preventScroll: true});
  }

  show(chat) {
    if (this.answering.live) this.answering.stop();
    engine.stop();
    this.byVoice.stop();
    this.chat = chat;
    this.undo = null;
    chat.turns.forEach((turn) => turn.answers.forEach((answer) => {  // a page that was closed in the middle
      if (answer?.running) Object.assign(answer, {running: false, finish: 'cancelled'});
    }));
    remember('open', chat.id);
    this.fitColumns(chat);
    this.say('');
    this.showSettings();
    this.draw();
    this.drawList();
    this.thread.scrollTop = this.thread.scrollHeight;
  }

  async keep() {
    const {chat} = this;
    if (!chat.turns.length) return;
    chat.changed = Date.now();
    this.views.forEach((view, answer) => { if (answer.running) this.answering.collect(answer); });
    if (!this.chats.includes(chat)) this.chats.unshift(chat);
    const sentence = await keepChat(chat);
    if (sentence) this.say(sentence);
    this.drawList();
  }

  drawList() {
    this.list.replaceChildren(...this.chats.map((chat) => make('li', {class: chat === this.chat ? 'current' : ''},
      make('button', {type: 'button', class: 'open', 'aria-current': chat === this.chat ? 'true' : null, onclick: () => {
        this.show(chat);
        if (innerWidth < WIDE) this.toggleSide('list', false);
      }}, chat.title || 'New chat'),
      iconButton('trash', `Delete the chat ${chat.title}`, () => this.drop(chat)))));
  }

  async drop(chat) {
    this.chats = this.chats.filter((each) => each !== chat);
    await dropChat(chat.id);
    if (chat === this.chat) this.newChat();
    this.drawList();
    this.say(`“${chat.title}” is deleted.`, '', ['Undo', () => {
      this.chats.unshift(chat);
      keepChat(chat);
      this.show(chat);
    }]);
  }

  // Settings.

  showSettings() {
    this.settings.show(this.chat.columns, this.offer.models);
    this.showModels();
  }

  showModels() {
    const {columns} = this.chat;
    const models = columns.map((column) => this.modelOf(column)).filter(Boolean);
    const names = [...new Set(models.map((model) => model.name))];
    this.title.textContent = names.join(' and ') + (columns.length > 1 ? ` · ${columns.length} side by side` : '');
    this.composer.show(Boolean(this.answering.live), models.some((model) => model.hears));
  }

  modelOf(column) { return this.offer.models.find((model) => model.value === column.model); }

  settingsChanged() {
    remember('columns', this.chat.columns);
    this.showModels();
    if (this.chat.turns.length) this.keep();
    else this.draw();
  }

  toggleSide(side, open = !this.root.classList.contains(`with-${side}`)) {
    this.root.classList.toggle(`with-${side}`, open);
    if (open && innerWidth < WIDE) this.root.classList.remove(side === 'list' ? 'with-settings' : 'with-list');
    this.root.querySelector(`.open-${side}`)?.setAttribute('aria-expanded', String(open));
  }

  say(sentence, kind = '', action = null) {
    this.notice.replaceChildren(sentence, action ? textButton(action[0], () => { this.say(''); action[1](); }) : '');
    this.notice.className = `notice ${kind}`;
    this.notice.hidden = !sentence;
  }

  // The conversation.

  draw() {
    this.views.clear();
    const {chat} = this;
    this.root.classList.toggle('several', chat.turns.some((turn) => turn.answers.length > 1));
    this.thread.replaceChildren(...(chat.turns.length ? chat.turns.map((turn, index) => this.drawTurn(turn, index)) : [this.welcome()]));
  }

  welcome() {
    const {models, samples, nobody} = this.offer;
    if (nobody) {
      return make('div', {class: 'welcome'}, make('p', {class: 'lead'}, 'No model can answer yet'), make('p', {class: 'muted'}, nobody));
    }
    const model = this.modelOf(this.chat.columns[0]) || models[0];
    const chip = (label, press, small) => make('button', {type: 'button', class: 'sample', onclick: press},
      make('span', {}, label), small ? make('small', {}, small) : null);
    const texts = model?.examples || [];
    const lead = model?.speaks ? 'Say something, or write it' : model?.hears ? 'Say something' : 'Write something';
    return make('div', {class: 'welcome'}, make('p', {class: 'lead'}, lead),
      make('p', {class: 'muted'}, model?.about || ''),
      make('div', {class: 'samples', role: 'group', 'aria-label': 'Examples'},
        ...texts.map((text) => chip(text, () => this.ask({text, sound: null}))),
        ...(model?.hears ? samples.slice(0, 3).map((sample) =>
          chip(`“${sample.text}”`, () => this.askSample(sample), `${sample.seconds.toFixed(1)} s spoken`)) : [])));
  }

  async askSample(sample) {
    engine.wake().catch(() => {});
    try {
      const file = await (await fetch(new URL(`samples/${encodeURIComponent(sample.file)}`, document.baseURI))).blob();
      const {sounds} = unpack(await post(`sound?name=${encodeURIComponent(sample.file)}`, file));
      this.ask({text: '', sound: sounds[0]});
    } catch (error) {
      this.say(error.message);
    }
  }

  fileName(index, column) {
    const words = this.chat.title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40) || 'chat';
    return `${words}-${index + 1}${this.chat.turns[index].answers.length > 1 ? 'abc'[column] : ''}`;
  }

  drawTurn(turn, index) {
    const said = make('div', {class: 'user'});
    const bubble = make('div', {class: 'bubble'});
    if (turn.user.sound) {
      bubble.append(new Voice(new Speech(turn.user.sound.rate, turn.user.sound.samples), {label: 'What you said'}).root);
    }
    if (turn.user.text) bubble.append(make('p', {}, turn.user.text));
    said.append(bubble, make('div', {class: 'tools'},
      iconButton('edit', 'Edit and go on from here', () => this.edit(index)),
      iconButton('trash', 'Delete this turn', () => this.removeTurn(index))));
    const answers = make('div', {class: `answers-row n${turn.answers.length}`});
    turn.answers.forEach((answer, column) => {
      if (!answer) return;
      const several = turn.answers.length > 1;
      const model = this.modelOf(answer.column);
      const view = new AnswerView(answer, {
        title: several ? `${'ABC'[column]} · ${model?.name || answer.column.model}${this.differs(turn, answer)}` : '',
        file: this.fileName(index, column),
        does: {
          retry: () => this.retry(index, column), replay: () => this.answering.replay(index, column),
        },
      });
      this.views.set(answer, view);
      answers.append(view.root);
    });
    return make('section', {class: 'turn', 'aria-label': `Turn ${index + 1}`}, said, answers);
  }

  // The runtime and the settings in which an answer differs from those beside it.
  differs(turn, answer) {
    const others = turn.answers.filter((each) => each && each !== answer);
    const names = new Set([answer, ...others].flatMap((each) => Object.keys(each.column.options)));
    const usual = new Map(this.modelOf(answer.column)?.options.map((option) => [option.name, option.default]));
    const value = (each, name) => each.column.options[name] ?? usual.get(name);
    const parts = [...names].filter((name) => others.some((each) => value(each, name) !== value(answer, name)))
      .map((name) => `${name} ${value(answer, name)}`);
    const model = this.modelOf(answer.column);
    if (others.some((each) => this.modelOf(each.column)?.model === model?.model && each.column.model !== answer.column.model)) parts.unshift(model.how);
    if (others.some((each) => each.column.system !== answer.column.system) && answer.column.system.trim()) {
      parts.push(`“${answer.column.system.trim().slice(0, 40)}”`);
    }
    return parts.length ? ` · ${parts.join(', ')}` : '';
  }

  ask({text, sound}) {
    if (this.answering.live) return false;
    if (!this.offer.models.length) { if (this.offer.nobody) this.say(this.offer.nobody); return false; }
    this.chat.turns.push({user: {text, sound}, answers: []});
    if (!this.chat.title) this.chat.title = text.slice(0, 60) || 'A recording';
    this.answering.answer(this.chat.turns.length - 1);
    return true;
  }

  // A turn that was refused as a whole stands in the composer again, so that nothing typed is lost.
  restore(answers) {
    const {turns} = this.chat;
    const last = turns[turns.length - 1];
    if (!last || !answers.length || !last.answers.every((answer) => answer?.finish === 'failed' && !answer.text && !answer.sound)) return;
    if (!answers.includes(last.answers[0]) || this.composer.area.value || this.composer.sound) return;
    this.composer.fill(last.user);
  }

  // Going back.

  cut(index, sentence) {
    const before = [...this.chat.turns];
    const removed = this.chat.turns.splice(index);
    this.say(sentence(removed.length), '', ['Undo', () => {
      if (this.answering.live) this.answering.stop();
      this.chat.turns = before;
      this.draw();
      this.keep();
    }]);
  }

  edit(index) {
    if (this.answering.live) this.answering.stop();
    const {user} = this.chat.turns[index];
    engine.stop();
    this.cut(index, (count) => `Edit the message and send it again; ${count === 1 ? 'its answer is' : `${count} turns are`} put aside.`);
    this.draw();
    this.keep();
    this.composer.fill(user);
  }

  removeTurn(index) {
    if (this.answering.live) this.answering.stop();
    engine.stop();
    const before = [...this.chat.turns];
    this.chat.turns.splice(index, 1);
    this.say('The turn is deleted.', '', ['Undo', () => { this.chat.turns = before; this.draw(); this.keep(); }]);
    this.draw();
    if (this.chat.turns.length) this.keep();
    else { dropChat(this.chat.id); this.chats = this.chats.filter((each) => each !== this.chat); this.drawList(); }
  }

  // Answers a turn again, with the next seed, or after a failure with the same; later turns are put aside.
  retry(index, column) {
    if (this.answering.live) return;
    const turn = this.chat.turns[index];
    const old = turn.answers[column];
    const fresh = structuredClone(this.chat.columns[column] || old.column);
    const seeded = this.modelOf(fresh)?.options.find((option) => option.name === 'seed');
    if (seeded && old.finish !== 'failed') fresh.options.seed = Number(old.answer?.settings?.seed ?? old.column.options.seed ?? seeded.default ?? 0) + 1;
    const later = index + 1 < this.chat.turns.length;
    const before = [...this.chat.turns];
    if (later) this.chat.turns.splice(index + 1);
    this.answering.answer(index, {column: fresh, index: column});
    this.say(later ? 'The later turns are removed.' : 'The earlier answer is replaced.', '', ['Undo', () => {
      if (this.answering.live) this.answering.stop();
      turn.answers[column] = old;
      this.chat.turns = before;
      this.draw();
      this.keep();
    }]);
  }

  async saveBundle() {
    if (!this.chat.turns.length) { this.say('There is nothing to save yet; say or write something first.'); return; }
    try {
      const content = await post('bundle', pack(...forBundle(this.chat)));
      saveFile(`${this.fileName(0, 0).replace(/-\d+a?$/, '')}.replay.zip`, new Blob([content], {type: 'application/zip'}));
    } catch (error) {
      this.say(error.message);
    }
  }

  async openBundle(file) {
    const {content, sounds} = unpack(await post('open', file));
    const chat = fromBundle(content, sounds);
    this.chats.unshift(chat);
    this.show(chat);
    await this.keep();
    this.say('This conversation comes from a file. Open “Settings and times” of an answer to replay it here.');
  }
}

export const open = async (element) => {
  const chat = new Chat(element);
  await chat.start();
};
