// The drawer of settings: for each column a model, a system prompt, and the options of its family.
import {iconButton, make, textButton} from './dom.js';

const MOST_COLUMNS = 3;
const LETTERS = 'ABC';

export class Settings {
  // `changed` is called after every change; `columns` is the list that is edited in place.
  constructor(changed, close) {
    Object.assign(this, {changed, columns: [], models: [], shown: 0});
    this.body = make('div', {class: 'settings-body'});
    this.root = make('aside', {class: 'settings', 'aria-label': 'Settings'},
      make('header', {}, make('h3', {}, 'Settings'), iconButton('close', 'Close the settings', close)), this.body);
  }

  show(columns, models) {
    Object.assign(this, {columns, models});
    this.shown = Math.min(this.shown, columns.length - 1);
    this.draw();
  }

  modelOf(column) { return this.models.find((model) => model.value === column.model); }

  draw() {
    const column = this.columns[this.shown];
    if (!column) { this.body.replaceChildren(); return; }
    const model = this.modelOf(column);
    this.body.replaceChildren(this.tabs(), this.modelInput(column, model), this.system(column),
      ...(model ? this.options(column, model) : []));
  }

  tabs() {
    const row = make('div', {class: 'columns', role: 'group', 'aria-label': 'Answers side by side'});
    if (this.columns.length > 1) {
      this.columns.forEach((column, index) => {
        row.append(make('button', {type: 'button', class: 'toggle', 'aria-pressed': String(index === this.shown),
          onclick: () => { this.shown = index; this.draw(); }}, LETTERS[index]));
      });
    }
    if (this.columns.length < MOST_COLUMNS) {
      row.append(textButton(this.columns.length > 1 ? 'Add' : 'Compare side by side', () => this.add(), 'quiet', 'plus'));
    }
    if (this.columns.length === 1 && this.runtimesOf(this.columns[0]).length > 1) {
      row.append(textButton('Compare the runtimes', () => this.compareRuntimes(), 'quiet', 'plus'));
    }
    if (this.columns.length > 1) row.append(textButton(`Remove ${LETTERS[this.shown]}`, () => this.remove()));
    return row;
  }

  // Another column answers the same turns; it begins with the same settings and the next seed.
  add() {
    const last = this.columns[this.columns.length - 1];
    const fresh = structuredClone(last);
    const seeded = this.modelOf(last)?.options.find((option) => option.name === 'seed');
    if (seeded) fresh.options.seed = Number(last.options.seed ?? seeded.default ?? 0) + 1;
    this.columns.push(fresh);
    this.shown = this.columns.length - 1;
    this.changed();
    this.draw();
  }

  // The entries of a column's model, one for each runtime.
  runtimesOf(column) {
    const model = this.modelOf(column)?.model;
    return this.models.filter((each, index) => each.model === model &&
      this.models.findIndex((other) => other.model === model && other.runtime === each.runtime) === index);
  }

  // One column for each runtime of the model, with equal settings and an equal seed.
  compareRuntimes() {
    const [first] = this.columns;
    const others = this.runtimesOf(first).filter((each) => each.runtime !== this.modelOf(first).runtime);
    others.slice(0, MOST_COLUMNS - 1).forEach((model) => {
      const column = {...structuredClone(first), model: model.value};
      column.options = this.known(column);
      this.columns.push(column);
    });
    this.changed();
    this.draw();
  }

  // The options of a column that its model has.
  known(column) {
    const names = new Set(this.modelOf(column)?.options.map((option) => option.name));
    return Object.fromEntries(Object.entries(column.options).filter(([name]) => names.has(name)));
  }

  remove() {
    this.columns.splice(this.shown, 1);
    this.shown = Math.max(0, this.shown - 1);
    this.changed();
    this.draw();
  }

  // The model, and beside it what runs it where there is a choice.
  modelInput(column, model) {
    const choose = (value) => {
      column.model = value;
      column.options = this.known(column);
      this.changed();
      this.draw();
    };
    const firsts = this.models.filter((each, index) => this.models.findIndex((other) => other.model === each.model) === index);
    const mine = this.models.filter((each) => each.model === model?.model);
    const models = this.select('chat-model', firsts.map((each) => [each.value, each.name]), mine[0]?.value, choose);
    const runtimes = this.select('chat-runtime', mine.map((each) => [each.value, each.how]), model?.value, choose);
    const field = this.field('Model', models, [model?.note, model?.about].filter(Boolean).join('. '));
    return make('div', {}, field, mine.length > 1 ? this.field('Runs on', runtimes, '') : null);
  }

  select(id, choices, chosen, choose) {
    const made = make('select', {id});
    made.addEventListener('change', () => choose(made.value));
    choices.forEach(([value, label]) => {
      const option = make('option', {value}, label);
      option.selected = value === chosen;
      made.append(option);
    });
    return made;
  }

  // The options that matter first; the others fold away, and stay open once opened.
  options(column, model) {
    const drawn = (main) => model.options.filter((option) => option.main === main).map((option) => this.option(column, option));
    const others = drawn(false);
    if (!others.length) return drawn(true);
    const more = make('details', {class: 'more-options', ontoggle: () => { this.open = more.open; }},
      make('summary', {}, 'More options'), ...others);
    more.open = Boolean(this.open);
    return [...drawn(true), more];
  }

  system(column) {
    const area = make('textarea', {rows: 3, id: 'chat-system', oninput: () => { column.system = area.value; this.changed(); }});
    area.value = column.system;
    return this.field('System prompt', area, 'Instructions for the model before the conversation, for example a voice or a style.');
  }

  option(column, option) {
    const value = column.options[option.name] ?? option.default;
    const set = (next) => {
      if (next === '' || next === option.default) delete column.options[option.name];
      else column.options[option.name] = next;
      this.changed();
    };
    const id = `chat-option-${option.name}`;
    if (option.kind === 'switch') {
      const box = make('input', {type: 'checkbox', id, onchange: () => set(box.checked)});
      box.checked = Boolean(value);
      return make('div', {class: 'setting switch'}, make('label', {}, box, option.label), make('small', {}, option.info));
    }
    let input;
    if (option.kind === 'choice') {
      input = this.select(id, option.choices.map((choice) => [choice, choice]), value, set);
    } else if (option.kind === 'lines') {
      input = make('textarea', {id, rows: 2, oninput: () => set(input.value)});
      input.value = value ?? '';
    } else {
      const written = () => {
        const number = Number(input.value);
        return option.kind === 'number' && input.value.trim() && !Number.isNaN(number) ? number : input.value.trim();
      };
      input = make('input', {id, type: 'text', inputmode: option.kind === 'number' ? 'decimal' : 'text',
        autocomplete: 'off', placeholder: 'default', oninput: () => set(written())});
      input.value = value ?? '';
    }
    return this.field(option.label, input, option.info);
  }

  field(label, input, info) {
    const about = `${input.id}-info`;
    input.setAttribute('aria-describedby', about);
    return make('div', {class: 'setting'}, make('label', {for: input.id}, label), input, make('small', {id: about}, info));
  }
}
