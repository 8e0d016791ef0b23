// Generates a form from a JSON Schema: a control for each member, a JSON field where no control
// fits. The server validates the input; its errors are shown at their members.
import { button, fill, h } from './elements.ts';

export interface SchemaForm {
  element: HTMLElement;
  /** The input without empty members. Throws a FieldError for a JSON field with invalid JSON. */
  read(): Record<string, unknown>;
  /**
   * Replaces the shown errors, by path such as `times` or `edits[0].text`. An index counts the items of the
   * last `read`, which leaves out empty items. Returns the errors whose path has no field.
   */
  showErrors(errors: readonly { path: string; message: string }[]): { path: string; message: string }[];
}

export class FieldError extends Error {
  override readonly name = 'FieldError';
  /** As in `showErrors`. */
  readonly path: string;
  constructor(path: string, message: string) {
    super(message);
    this.path = path;
  }
}

export interface Schema {
  type?: string | readonly string[];
  title?: string;
  description?: string;
  properties?: Readonly<Record<string, Schema>>;
  required?: readonly string[];
  items?: Schema;
  enum?: readonly unknown[];
  const?: unknown;
  default?: unknown;
  format?: string;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  anyOf?: readonly Schema[];
  oneOf?: readonly Schema[];
}

interface Field {
  element: HTMLElement;
  /** Undefined for an empty field. */
  read(): unknown;
  /**
   * The path is relative to this field, and empty for the field itself. Returns false when there is no
   * field at the path.
   */
  setError(path: string, message: string): boolean;
  clear(): void;
}

let lastId = 0;

function rootField(schema: Schema, name: string): Field {
  if (Object.keys(schema.properties ?? {}).length > 0) return objectField(schema, name);
  const takesAnything = (schema as { additionalProperties?: unknown }).additionalProperties !== false;
  if (!takesAnything) return emptyField();
  const description = schema.description ?? 'A JSON object.';
  return jsonField({ ...schema, description }, name, { isRequired: true });
}

/** `name` makes the ids of its fields unique on the page. */
export function createSchemaForm(schema: Schema, name: string): SchemaForm {
  const root = rootField(schema, name);
  return {
    element: h('div', { class: 'fields' }, root.element),
    read: () => (root.read() ?? {}) as Record<string, unknown>,
    showErrors(errors) {
      root.clear();
      return errors.filter(({ path, message }) => !root.setError(path, message));
    },
  };
}

function emptyField(): Field {
  return {
    element: h('p', { class: 'quiet' }, 'This action accepts no input.'),
    read: () => undefined,
    setError: () => false,
    clear: () => {},
  };
}

function objectField(schema: Schema, path: string): Field {
  const fields = Object.entries(schema.properties ?? {}).map(([name, member]): [string, Field] => {
    const isRequired = schema.required?.includes(name) ?? false;
    return [name, memberField(member, { name, path: `${path}.${name}`, isRequired })];
  });
  return {
    element: h(
      'div',
      { class: 'members' },
      fields.map(([, field]) => field.element),
    ),
    read() {
      const members = fields.flatMap(([name, field]) => {
        const value = readMember(field, name);
        return value === undefined ? [] : [[name, value] as const];
      });
      return members.length === 0 ? undefined : Object.fromEntries(members);
    },
    setError(errorPath, message) {
      const { name, rest } = splitPath(errorPath);
      const field = fields.find(([candidate]) => candidate === name)?.[1];
      if (field === undefined) return false;
      return field.setError(rest, message);
    },
    clear: () => fields.forEach(([, field]) => field.clear()),
  };
}

interface MemberOptions {
  name: string;
  path: string;
  isRequired: boolean;
}

function memberField(schema: Schema, options: MemberOptions): Field {
  const type = typeOf(schema);
  if (type === 'object' && Object.keys(schema.properties ?? {}).length > 0)
    return nestedField(schema, options, objectField(schema, options.path));
  if (type === 'array' && schema.items !== undefined)
    return nestedField(schema, options, arrayField(schema, options));
  return labelledField(schema, options, createWidget(schema, type, options));
}

function typeOf({ type, enum: choices, properties }: Schema): string | undefined {
  if (choices !== undefined) return 'enum';
  const types = typeof type === 'string' ? [type] : (type ?? []).filter((name) => name !== 'null');
  if (types.length === 1) return types[0];
  return properties === undefined ? undefined : 'object';
}

interface Widget {
  control: HTMLElement;
  read(): unknown;
}

interface WidgetContext {
  schema: Schema;
  name: string;
  isRequired: boolean;
  /** Attributes of every control. */
  shared: Record<string, unknown>;
  placeholder: string;
}

function createWidget(
  schema: Schema,
  type: string | undefined,
  { name, path, isRequired }: MemberOptions,
): Widget {
  const id = `field-${path.replaceAll(/[^\w-]+/g, '-')}-${(lastId += 1)}`;
  const attributes = {
    id,
    'data-path': path,
    'aria-required': isRequired ? 'true' : null,
    autocomplete: 'off',
  };
  const placeholder = schema.default === undefined ? '' : `${JSON.stringify(schema.default)} by default`;
  const context: WidgetContext = { schema, name, isRequired, shared: attributes, placeholder };
  if (type === 'enum') return enumWidget(context);
  if (type === 'boolean') return booleanWidget(context);
  if (type === 'integer' || type === 'number') return numberWidget(context, type);
  if (type === 'string') return textWidget(context);
  return jsonWidget(attributes, placeholder);
}

function enumWidget({ schema, isRequired, shared }: WidgetContext): Widget {
  const choices = schema.enum ?? [];
  const control = h(
    'select',
    shared,
    h('option', { value: '' }, isRequired ? 'Choose …' : '(not set)'),
    choices.map((choice, index) => h('option', { value: index }, String(choice as string))),
  );
  return { control, read: () => (control.value === '' ? undefined : choices[Number(control.value)]) };
}

function booleanWidget({ shared }: WidgetContext): Widget {
  const control = h(
    'select',
    shared,
    h('option', { value: '' }, '(not set)'),
    h('option', { value: 'true' }, 'yes'),
    h('option', { value: 'false' }, 'no'),
  );
  return { control, read: () => (control.value === '' ? undefined : control.value === 'true') };
}

function numberWidget(
  { schema: { minimum, maximum }, shared, placeholder }: WidgetContext,
  type: 'integer' | 'number',
): Widget {
  const bounds = minimum !== undefined && maximum !== undefined ? `${minimum} to ${maximum}` : '';
  const control = h('input', {
    ...shared,
    // A control of type `number` would drop text that is not a number, and the server could not
    // report it.
    type: 'text',
    inputmode: type === 'integer' ? 'numeric' : 'decimal',
    placeholder: placeholder || bounds,
  });
  return {
    control,
    read() {
      const text = control.value.trim();
      if (text === '') return undefined;
      return Number.isFinite(Number(text)) ? Number(text) : text;
    },
  };
}

function textWidget({ schema, name, shared, placeholder }: WidgetContext): Widget {
  const isLong =
    (schema.maxLength ?? 0) > 1_000 ||
    /^(?:content|text|body|command|input|instructions|prompt|note)$/i.test(name);
  const example = schema.format === 'date-time' ? '2026-11-20T09:00:00Z' : '';
  const control = isLong
    ? h('textarea', { ...shared, rows: 3, placeholder, spellcheck: 'false' })
    : h('input', { ...shared, type: 'text', placeholder: placeholder || example, spellcheck: 'false' });
  return { control, read: () => (control.value === '' ? undefined : control.value) };
}

function jsonWidget(attributes: Record<string, unknown>, placeholder: string): Widget {
  const control = h('textarea', {
    ...attributes,
    rows: 4,
    class: 'code',
    placeholder: placeholder || 'JSON',
    spellcheck: 'false',
  });
  return {
    control,
    read() {
      if (control.value.trim() === '') return undefined;
      try {
        return JSON.parse(control.value) as unknown;
      } catch {
        throw new FieldError('', 'is not JSON');
      }
    },
  };
}

function jsonField(schema: Schema, path: string, { isRequired }: { isRequired: boolean }): Field {
  return labelledField(
    schema,
    { name: 'payload', path, isRequired },
    jsonWidget({ id: `field-${(lastId += 1)}`, 'data-path': path }, '{}'),
  );
}

function labelledField(
  schema: Schema,
  { name, isRequired }: MemberOptions,
  { control, read }: Widget,
): Field {
  const errorText = h('p', { class: 'fault', id: `${control.id}-fault`, hidden: true });
  const help = h('p', { class: 'quiet', id: `${control.id}-help` }, schema.description ?? '');
  control.setAttribute('aria-describedby', `${help.id} ${errorText.id}`);
  return {
    element: h(
      'div',
      { class: 'field' },
      h(
        'label',
        { for: control.id },
        schema.title ?? name,
        isRequired && h('span', { class: 'required', title: 'Required' }, ' *'),
      ),
      control,
      schema.description !== undefined && help,
      errorText,
    ),
    read,
    setError(_path, message) {
      errorText.textContent = errorText.hidden ? message : `${errorText.textContent ?? ''}; ${message}`;
      errorText.hidden = false;
      control.setAttribute('aria-invalid', 'true');
      return true;
    },
    clear() {
      errorText.hidden = true;
      control.removeAttribute('aria-invalid');
    },
  };
}

function nestedField(schema: Schema, { name, isRequired }: MemberOptions, field: Field): Field {
  const ownError = h('p', { class: 'fault', hidden: true });
  return {
    element: h(
      'fieldset',
      {},
      h('legend', {}, schema.title ?? name, isRequired && h('span', { class: 'required' }, ' *')),
      schema.description !== undefined && h('p', { class: 'quiet' }, schema.description),
      field.element,
      ownError,
    ),
    read: () => field.read(),
    setError(path, message) {
      if (path !== '' && field.setError(path, message)) return true;
      const text = path === '' ? message : `${path} ${message}`;
      ownError.textContent = ownError.hidden ? text : `${ownError.textContent ?? ''}; ${text}`;
      ownError.hidden = false;
      return true;
    },
    clear() {
      ownError.hidden = true;
      field.clear();
    },
  };
}

function arrayField(schema: Schema, { path, isRequired }: MemberOptions): Field {
  const items: Field[] = [];
  /** The items of the last `read`, without those that were empty. */
  let readItems: Field[] = [];
  const rows = h('div', { class: 'items' });
  const itemSchema = schema.items ?? {};
  function draw(): void {
    fill(
      rows,
      items.map((item, index) =>
        h(
          'div',
          { class: 'row item' },
          item.element,
          button(
            'Remove',
            () => {
              items.splice(index, 1);
              draw();
            },
            { class: 'plain small', 'aria-label': `Remove item ${index + 1}` },
          ),
        ),
      ),
    );
  }
  const add = (): void => {
    items.push(
      memberField(itemSchema, {
        name: `${items.length + 1}`,
        path: `${path}[${items.length}]`,
        isRequired: false,
      }),
    );
    draw();
  };
  if (isRequired) add();
  return {
    element: h('div', {}, rows, button('Add item', add, { class: 'plain small' })),
    read() {
      const values: unknown[] = [];
      readItems = [];
      for (const item of items) {
        readItems.push(item);
        const value = readMember(item, `[${values.length}]`);
        if (value === undefined) readItems.pop();
        else values.push(value);
      }
      return values.length === 0 && !isRequired ? undefined : values;
    },
    setError(errorPath, message) {
      const { name, rest } = splitPath(errorPath);
      return readItems[Number(name)]?.setError(rest, message) ?? false;
    },
    clear: () => items.forEach((item) => item.clear()),
  };
}

/**
 * Reads a field of a form or list. The path of a FieldError gets the name or `[index]` of the field in front.
 */
function readMember(field: Field, step: string): unknown {
  try {
    return field.read();
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    const separator = error.path === '' || error.path.startsWith('[') ? '' : '.';
    throw new FieldError(`${step}${separator}${error.path}`, error.message);
  }
}

// Splits off the first name or index: `edits[0].text` into `edits` and `[0].text`, that into `0` and `text`.
function splitPath(path: string): { name: string; rest: string } {
  const [, name = '', rest = ''] = /^\[?([^.[\]]*)\]?\.?(.*)$/s.exec(path) ?? [];
  return { name, rest };
}
