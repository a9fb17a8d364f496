// The drawer of settings: for each column a model, a system prompt, and the options of its family.
import {iconButton, make, textButton} from './dom.js';

const MAX_COLUMNS = 3;
const LETTERS = 'ABC';

export class Settings {
  // `onChange` is called after every change, `onClose` by the close button; `columns` is edited in place.
  constructor(onChange, onClose) {
    Object.assign(this, {onChange, columns: [], models: [], selectedIndex: 0});
    this.body = make('div', {class: 'settings-body'});
    this.root = make('aside', {class: 'settings', 'aria-label': 'Settings'},
      make('header', {}, make('h3', {}, 'Settings'), iconButton('close', 'Close the settings', onClose)), this.body);
  }

  show(columns, models) {
    Object.assign(this, {columns, models});
    this.selectedIndex = Math.min(this.selectedIndex, columns.length - 1);
    this.draw();
  }

  modelOf(column) { return this.models.find((model) => model.value === column.model); }

  draw() {
    const column = this.columns[this.selectedIndex];
    if (!column) { this.body.replaceChildren(); return; }
    const model = this.modelOf(column);
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    this.body.replaceChildren(this.tabs(), this.modelInput(column, model), this.systemInput(column),
      ...(model ? this.optionInputs(column, model) : []));
    const redrawn = focused?.id ? this.body.querySelector(`#${focused.id}`) : null;
    redrawn?.focus({preventScroll: true});
    if (Number.isInteger(focused?.selectionStart)) redrawn?.setSelectionRange(focused.selectionStart, focused.selectionEnd);
  }

  tabs() {
    const row = make('div', {class: 'columns', role: 'group', 'aria-label': 'Answers side by side'});
    if (this.columns.length > 1) {
      this.columns.forEach((column, index) => {
        row.append(make('button', {type: 'button', class: 'toggle', 'aria-pressed': String(index === this.selectedIndex),
          onclick: () => { this.selectedIndex = index; this.draw(); }}, LETTERS[index]));
      });
    }
    if (this.columns.length < MAX_COLUMNS) {
      row.append(textButton(this.columns.length > 1 ? 'Add' : 'Compare side by side', () => this.addColumn(), 'quiet', 'plus'));
    }
    if (this.columns.length === 1 && this.runtimesOf(this.columns[0]).length > 1) {
      row.append(textButton('Compare the runtimes', () => this.compareRuntimes(), 'quiet', 'plus'));
    }
    if (this.columns.length > 1) row.append(textButton(`Remove ${LETTERS[this.selectedIndex]}`, () => this.removeColumn()));
    return row;
  }

  // Adds a column, whose model answers the same turns. It has the settings of the last column and the next seed.
  addColumn() {
    const lastColumn = this.columns[this.columns.length - 1];
    const column = structuredClone(lastColumn);
    const seedOption = this.modelOf(lastColumn)?.options.find((option) => option.name === 'seed');
    if (seedOption) column.options.seed = Number(lastColumn.options.seed ?? seedOption.default ?? 0) + 1;
    this.columns.push(column);
    this.selectedIndex = this.columns.length - 1;
    this.onChange();
    this.draw();
  }

  // Returns the entries of a column's model, one for each runtime.
  runtimesOf(column) {
    const model = this.modelOf(column)?.model;
    return this.models.filter((entry, index) => entry.model === model &&
      this.models.findIndex((otherEntry) => otherEntry.model === model && otherEntry.runtime === entry.runtime) === index);
  }

  // Adds a column for each other runtime of the model, with the same settings and the same seed.
  compareRuntimes() {
    const [firstColumn] = this.columns;
    const otherEntries = this.runtimesOf(firstColumn).filter((entry) => entry.runtime !== this.modelOf(firstColumn).runtime);
    otherEntries.slice(0, MAX_COLUMNS - 1).forEach((entry) => {
      const column = {...structuredClone(firstColumn), model: entry.value};
      column.options = this.knownOptions(column);
      this.columns.push(column);
    });
    this.onChange();
    this.draw();
  }

  // Returns the options of a column that its model has.
  knownOptions(column) {
    const names = new Set(this.modelOf(column)?.options.map((option) => option.name));
    return Object.fromEntries(Object.entries(column.options).filter(([name]) => names.has(name)));
  }

  removeColumn() {
    this.columns.splice(this.selectedIndex, 1);
    this.selectedIndex = Math.max(0, this.selectedIndex - 1);
    this.onChange();
    this.draw();
  }

  // Returns the inputs for the model and, where there is a choice, for its runtime.
  modelInput(column, model) {
    const onChoose = (value) => {
      column.model = value;
      column.options = this.knownOptions(column);
      this.onChange();
      this.draw();
    };
    const firstEntries = this.models.filter((each, index) => this.models.findIndex((other) => other.model === each.model) === index);
    const runtimeEntries = this.models.filter((each) => each.model === model?.model);
    const modelSelect = this.select('chat-model', firstEntries.map((each) => [each.value, each.name]), runtimeEntries[0]?.value, onChoose);
    const runtimeSelect = this.select('chat-runtime', runtimeEntries.map((each) => [each.value, each.how]), model?.value, onChoose);
    const field = this.field('Model', modelSelect, [model?.note, model?.about].filter(Boolean).join('. '));
    return make('div', {}, field, runtimeEntries.length > 1 ? this.field('Runs on', runtimeSelect, '') : null);
  }

  select(id, choices, selectedValue, onChoose) {
    const select = make('select', {id});
    select.addEventListener('change', () => onChoose(select.value));
    choices.forEach(([value, label]) => {
      const option = make('option', {value}, label);
      option.selected = value === selectedValue;
      select.append(option);
    });
    return select;
  }

  // Returns the inputs of the main options, then the others in a foldable part, which stays open once it is opened.
  optionInputs(column, model) {
    const drawOptions = (isMain) => model.options.filter((option) => option.main === isMain).map((option) => this.optionInput(column, option));
    const otherOptions = drawOptions(false);
    if (!otherOptions.length) return drawOptions(true);
    const details = make('details', {class: 'more-options', ontoggle: () => { this.hasOpenDetails = details.open; }},
      make('summary', {}, 'More options'), ...otherOptions);
    details.open = Boolean(this.hasOpenDetails);
    return [...drawOptions(true), details];
  }

  systemInput(column) {
    const area = make('textarea', {rows: 3, id: 'chat-system', oninput: () => { column.system = area.value; this.onChange(); }});
    area.value = column.system;
    return this.field('System prompt', area, 'Instructions for the model before the conversation, for example a voice or a style.');
  }

  optionInput(column, option) {
    const value = column.options[option.name] ?? option.default;
    const setValue = (newValue) => {
      if (newValue === '' || newValue === option.default) delete column.options[option.name];
      else column.options[option.name] = newValue;
      this.onChange();
    };
    const id = `chat-option-${option.name}`;
    if (option.kind === 'switch') {
      const checkbox = make('input', {type: 'checkbox', id, onchange: () => setValue(checkbox.checked)});
      checkbox.checked = Boolean(value);
      return make('div', {class: 'setting switch'}, make('label', {}, checkbox, option.label), make('small', {}, option.info));
    }
    let input;
    if (option.kind === 'choice') {
      input = this.select(id, option.choices.map((choice) => [choice, choice]), value, setValue);
    } else if (option.kind === 'lines') {
      input = make('textarea', {id, rows: 2, oninput: () => setValue(input.value)});
      input.value = value ?? '';
    } else {
      const readValue = () => {
        const number = Number(input.value);
        return option.kind === 'number' && input.value.trim() && Number.isFinite(number) ? number : input.value.trim();
      };
      input = make('input', {id, type: 'text', inputmode: option.kind === 'number' ? 'decimal' : 'text',
        autocomplete: 'off', placeholder: 'default', oninput: () => setValue(readValue())});
      input.value = value ?? '';
    }
    return this.field(option.label, input, option.info);
  }

  field(label, input, info) {
    const infoId = `${input.id}-info`;
    input.setAttribute('aria-describedby', infoId);
    return make('div', {class: 'setting'}, make('label', {for: input.id}, label), input, make('small', {id: infoId}, info));
  }
}
