// The Chat tab: conversations and what a visitor can do with them.
import {AnswerView} from './answer.js';
import {Answering} from './answering.js';
import {Composer} from './composer.js';
import {beginning, iconButton, make, saveFile, textButton} from './dom.js';
import {forBundle, fromBundle} from './history.js';
import {Settings} from './settings.js';
import {Speech, engine} from './sound.js';
import {allChats, areColumns, deleteChat, saveChat, loadSetting, saveSetting, trimChats} from './store.js';
import {VoiceControl} from './talking.js';
import {Voice} from './voice.js';
import {pack, chatUrl, post, unpack} from './wire.js';

const WIDE_SCREEN = matchMedia('(min-width: 62.5em)'); // the list and the settings are beside the conversation

const makeId = () => crypto.randomUUID?.() || `${Date.now()}-${Math.random()}`;

class Chat {
  constructor(element) {
    this.element = element;
    Object.assign(this, {offer: {models: [], samples: []}, chats: [], chat: null, views: new Map(), undo: null});
    Object.assign(this, {answering: new Answering(this), voiceControl: new VoiceControl(this)});
    this.composer = new Composer({
      send: (turn) => this.sendTurn(turn), stop: () => this.answering.stop(), openBundle: (file) => this.openBundle(file), talk: () => this.voiceControl.toggle(),
      showNotice: (sentence, kind) => this.showNotice(sentence, kind),
    });
    this.settings = new Settings(() => this.settingsChanged(), () => this.toggleSide('settings', false));
    this.notice = make('p', {class: 'notice', role: 'status'});
    this.announcer = make('p', {class: 'sr', 'aria-live': 'polite'});
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
      make('section', {class: 'middle', 'aria-label': 'Chat'}, this.bar, this.thread, this.notice, this.composer.root, this.announcer),
      this.settings.root);
    this.addListeners();
  }

  addListeners() {
    const middle = this.root.querySelector('.middle');
    middle.addEventListener('dragover', (event) => { event.preventDefault(); middle.classList.add('dropping'); });
    middle.addEventListener('dragleave', (event) => { if (!middle.contains(event.relatedTarget)) middle.classList.remove('dropping'); });
    middle.addEventListener('drop', (event) => {
      event.preventDefault();
      middle.classList.remove('dropping');
      this.composer.takeFile(event.dataTransfer.files[0]);
    });
    this.root.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      if (this.composer.recording) this.composer.finish(false, true);
      else if (this.answering.live || engine.playback) this.answering.stop();
      else if (!WIDE_SCREEN.matches) { this.toggleSide('list', false); this.toggleSide('settings', false); }
    });
    engine.watchers.add(({played, missed, level}) => {  // the sound that plays now
      Object.assign(this.root.dataset, {played, missed: missed ?? this.root.dataset.missed, level: level.toFixed(4)});
    });
    const measureTop = () => {
      const top = this.root.getBoundingClientRect().top + scrollY;
      this.root.style.setProperty('--top', `${Math.round(top)}px`);
    };
    new ResizeObserver(measureTop).observe(document.body);
    const observer = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      measureTop();
      this.composer.fitHeight();
      this.loadOffer();
    });
    observer.observe(this.root);
  }

  // Models and conversations.

  async start() {
    this.chats = await trimChats(await allChats());
    await this.loadOffer();
    this.element.replaceChildren(this.root); // the page appears once the models are known
    const lastChat = this.chats.find((chat) => chat.id === loadSetting('open'));
    if (lastChat) this.show(lastChat);
    else this.newChat();
    const isWide = WIDE_SCREEN.matches;
    this.toggleSide('list', isWide && this.chats.length > 0);
    this.toggleSide('settings', isWide && innerWidth >= 1200);
    this.root.dataset.ready = 'yes';
  }

  // Loads the models and samples of the server; somebody may have downloaded a model meanwhile.
  async loadOffer() {
    try {
      const offerText = await (await fetch(chatUrl('offer'))).text();
      if (offerText === this.offerText) return;  // drawing the same again would take the focus from a visitor who types
      Object.assign(this, {offer: JSON.parse(offerText), offerText});
    } catch {
      this.showNotice('The server cannot be reached; reload the page.');
      return;
    }
    if (!this.chat) return;
    this.fitColumns(this.chat);
    this.showSettings();
    if (!this.chat.turns.length) this.draw();
  }

  defaultColumns() {
    const savedColumns = loadSetting('columns');
    if (areColumns(savedColumns)) return structuredClone(savedColumns);
    return [{model: this.offer.models[0]?.value || '', system: '', options: {}}];
  }

  // A column whose model is not on this server gets the first model of the server; answers keep their models.
  fitColumns(chat) {
    const offeredModels = new Set(this.offer.models.map((model) => model.value));
    chat.columns.forEach((column) => {
      if (!offeredModels.has(column.model) && this.offer.models.length) Object.assign(column, {model: this.offer.models[0].value, options: {}});
    });
  }

  newChat() {
    if (this.answering.live) this.answering.stop();
    this.toggleSide('list', WIDE_SCREEN.matches && this.root.classList.contains('with-list'));
    const chat = {id: makeId(), title: '', created: new Date().toISOString(), changed: Date.now(), columns: this.defaultColumns(), turns: []};
    this.show(chat);
    this.composer.textArea.focus({preventScroll: true});
  }

  show(chat) {
    if (this.answering.live) this.answering.stop();
    engine.stop();
    this.voiceControl.stop();
    this.chat = chat;
    this.undo = null;
    chat.turns.forEach((turn) => turn.answers.forEach((answer) => {  // the page was closed during the answer
      if (answer?.running) Object.assign(answer, {running: false, finish: 'cancelled'});
    }));
    saveSetting('open', chat.id);
    this.fitColumns(chat);
    this.showNotice('');
    this.showSettings();
    this.draw();
    this.drawList();
    this.thread.scrollTop = this.thread.scrollHeight;
  }

  async save() {
    const {chat} = this;
    if (!chat.turns.length) return;
    chat.changed = Date.now();
    this.views.forEach((view, answer) => { if (answer.running) this.answering.storeSound(answer); });
    if (!this.chats.includes(chat)) this.chats.unshift(chat);
    const sentence = await saveChat(chat);
    if (sentence) this.showNotice(sentence);
    this.drawList();
  }

  drawList() {
    this.list.replaceChildren(...this.chats.map((chat) => make('li', {class: chat === this.chat ? 'current' : ''},
      make('button', {type: 'button', class: 'open', 'aria-current': chat === this.chat ? 'true' : null, onclick: () => {
        this.show(chat);
        if (!WIDE_SCREEN.matches) this.toggleSide('list', false);
      }}, chat.title || 'New chat'),
      iconButton('trash', `Delete the chat ${chat.title}`, () => this.deleteChat(chat)))));
  }

  async deleteChat(chat) {
    this.chats = this.chats.filter((each) => each !== chat);
    await deleteChat(chat.id);
    if (chat === this.chat) this.newChat();
    this.drawList();
    this.showNotice(`“${chat.title}” is deleted.`, '', ['Undo', () => {
      this.chats.unshift(chat);
      saveChat(chat);
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
    saveSetting('columns', this.chat.columns);
    this.showModels();
    if (this.chat.turns.length) this.save();
    else this.draw();
  }

  toggleSide(side, open = !this.root.classList.contains(`with-${side}`)) {
    this.root.classList.toggle(`with-${side}`, open);
    if (open && !WIDE_SCREEN.matches) this.root.classList.remove(side === 'list' ? 'with-settings' : 'with-list');
    this.root.querySelector(`.open-${side}`)?.setAttribute('aria-expanded', String(open));
  }

  showNotice(sentence, kind = '', action = null) {
    this.notice.replaceChildren(sentence, action ? textButton(action[0], () => { this.showNotice(''); action[1](); }) : '');
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
    const sampleButton = (label, onPress, note) => make('button', {type: 'button', class: 'sample', onclick: onPress},
      make('span', {}, label), note ? make('small', {}, note) : null);
    const examples = model?.examples || [];
    const headline = model?.speaks ? 'Say something, or write it' : model?.hears ? 'Say something' : 'Write something';
    return make('div', {class: 'welcome'}, make('p', {class: 'lead'}, headline),
      make('p', {class: 'muted'}, model?.about || ''),
      make('div', {class: 'samples', role: 'group', 'aria-label': 'Examples'},
        ...examples.map((text) => sampleButton(text, () => this.sendTurn({text, sound: null}))),
        ...(model?.hears ? samples.slice(0, 3).map((sample) =>
          sampleButton(`“${sample.text}”`, () => this.askSample(sample), `${sample.seconds.toFixed(1)} s spoken`)) : [])));
  }

  async askSample(sample) {
    engine.wake().catch(() => {});
    try {
      const file = await (await fetch(new URL(`samples/${encodeURIComponent(sample.file)}`, document.baseURI))).blob();
      const {sounds} = unpack(await post(`sound?name=${encodeURIComponent(sample.file)}`, file));
      this.sendTurn({text: '', sound: sounds[0]});
    } catch (error) {
      this.showNotice(error.message);
    }
  }

  fileName(index, column) {
    const title = beginning(this.chat.title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, ''), 40) || 'chat';
    return `${title}-${index + 1}${this.chat.turns[index].answers.length > 1 ? 'abc'[column] : ''}`;
  }

  drawTurn(turn, index) {
    const userBox = make('div', {class: 'user'});
    const bubble = make('div', {class: 'bubble'});
    if (turn.user.sound) {
      bubble.append(new Voice(new Speech(turn.user.sound.rate, turn.user.sound.samples), {label: 'What you said'}).root);
    }
    if (turn.user.text) bubble.append(make('p', {}, turn.user.text));
    userBox.append(bubble, make('div', {class: 'tools'},
      iconButton('edit', 'Edit and go on from here', () => this.edit(index)),
      iconButton('trash', 'Delete this turn', () => this.removeTurn(index))));
    const answers = make('div', {class: `answers-row n${turn.answers.length}`});
    turn.answers.forEach((answer, column) => {
      if (!answer) return;
      const hasSeveralAnswers = turn.answers.length > 1;
      const model = this.modelOf(answer.column);
      const view = new AnswerView(answer, {
        title: hasSeveralAnswers ? `${'ABC'[column]} · ${model?.name || answer.column.model}${this.describeDifferences(turn, answer)}` : '',
        file: this.fileName(index, column),
        actions: {
          retry: () => this.retry(index, column), replay: () => this.answering.replay(index, column),
        },
      });
      this.views.set(answer, view);
      answers.append(view.root);
    });
    return make('section', {class: 'turn', 'aria-label': `Turn ${index + 1}`}, userBox, answers);
  }

  // Returns the runtime and the settings in which an answer differs from the others of its turn.
  describeDifferences(turn, answer) {
    const others = turn.answers.filter((each) => each && each !== answer);
    const names = new Set([answer, ...others].flatMap((each) => Object.keys(each.column.options)));
    const defaults = new Map(this.modelOf(answer.column)?.options.map((option) => [option.name, option.default]));
    const value = (each, name) => each.column.options[name] ?? defaults.get(name);
    const parts = [...names].filter((name) => others.some((each) => value(each, name) !== value(answer, name)))
      .map((name) => `${name} ${value(answer, name)}`);
    const model = this.modelOf(answer.column);
    if (others.some((each) => this.modelOf(each.column)?.model === model?.model && each.column.model !== answer.column.model)) parts.unshift(model.how);
    if (others.some((each) => each.column.system !== answer.column.system) && answer.column.system.trim()) {
      parts.push(`“${beginning(answer.column.system.trim(), 40)}”`);
    }
    return parts.length ? ` · ${parts.join(', ')}` : '';
  }

  sendTurn({text, sound}) {
    if (this.answering.live) return false;
    if (!this.offer.models.length) { if (this.offer.nobody) this.showNotice(this.offer.nobody); return false; }
    this.chat.turns.push({user: {text, sound}, answers: []});
    if (!this.chat.title) this.chat.title = beginning(text, 60) || 'A recording';
    this.answering.answer(this.chat.turns.length - 1);
    return true;
  }

  // Puts a turn whose answers all failed back into the composer, so that the visitor's text is not lost.
  restoreTurn(answers) {
    const {turns} = this.chat;
    const lastTurn = turns[turns.length - 1];
    if (!lastTurn || !answers.length || !lastTurn.answers.every((answer) => answer?.finish === 'failed' && !answer.text && !answer.sound)) return;
    if (!answers.includes(lastTurn.answers[0]) || this.composer.textArea.value || this.composer.sound) return;
    this.composer.fill(lastTurn.user);
  }

  // Editing and undoing.

  removeTurnsFrom(index, sentenceFor) {
    const previousTurns = [...this.chat.turns];
    const removedTurns = this.chat.turns.splice(index);
    this.showNotice(sentenceFor(removedTurns.length), '', ['Undo', () => {
      if (this.answering.live) this.answering.stop();
      this.chat.turns = previousTurns;
      this.draw();
      this.save();
    }]);
  }

  edit(index) {
    if (this.answering.live) this.answering.stop();
    const {user} = this.chat.turns[index];
    engine.stop();
    this.removeTurnsFrom(index, (count) => `Edit the message and send it again; ${count === 1 ? 'its answer is' : `${count} turns are`} put aside.`);
    this.draw();
    this.save();
    this.composer.fill(user);
  }

  removeTurn(index) {
    if (this.answering.live) this.answering.stop();
    engine.stop();
    const previousTurns = [...this.chat.turns];
    this.chat.turns.splice(index, 1);
    this.showNotice('The turn is deleted.', '', ['Undo', () => { this.chat.turns = previousTurns; this.draw(); this.save(); }]);
    this.draw();
    if (this.chat.turns.length) this.save();
    else { deleteChat(this.chat.id); this.chats = this.chats.filter((each) => each !== this.chat); this.drawList(); }
  }

  // Asks for another answer to a turn, with the next seed, or with the same seed after a failure; removes later turns.
  retry(index, column) {
    if (this.answering.live) return;
    const turn = this.chat.turns[index];
    const oldAnswer = turn.answers[column];
    const newColumn = structuredClone(this.chat.columns[column] || oldAnswer.column);
    const seedOption = this.modelOf(newColumn)?.options.find((option) => option.name === 'seed');
    if (seedOption && oldAnswer.finish !== 'failed') newColumn.options.seed = Number(oldAnswer.answer?.settings?.seed ?? oldAnswer.column.options.seed ?? seedOption.default ?? 0) + 1;
    const hasLaterTurns = index + 1 < this.chat.turns.length;
    const previousTurns = [...this.chat.turns];
    if (hasLaterTurns) this.chat.turns.splice(index + 1);
    this.answering.answer(index, {column: newColumn, index: column});
    this.showNotice(hasLaterTurns ? 'The later turns are removed.' : 'The earlier answer is replaced.', '', ['Undo', () => {
      if (this.answering.live) this.answering.stop();
      turn.answers[column] = oldAnswer;
      this.chat.turns = previousTurns;
      this.draw();
      this.save();
    }]);
  }

  async saveBundle() {
    if (!this.chat.turns.length) { this.showNotice('There is nothing to save yet; say or write something first.'); return; }
    try {
      const content = await post('bundle', pack(...forBundle(this.chat)));
      saveFile(`${this.fileName(0, 0).replace(/-\d+a?$/, '')}.replay.zip`, new Blob([content], {type: 'application/zip'}));
    } catch (error) {
      this.showNotice(error.message);
    }
  }

  async openBundle(file) {
    const {content, sounds} = unpack(await post('open', file));
    const chat = fromBundle(content, sounds);
    this.chats.unshift(chat);
    this.show(chat);
    await this.save();
    this.showNotice('This conversation comes from a file. Open “Settings and times” of an answer to replay it here.');
  }
}

export const open = async (element) => {
  const chat = new Chat(element);
  await chat.start();
};
