// A form out of a JSON Schema: a field for each member with a widget that suits it, JSON for what no widget suits. It does
// not judge what is written; the server does, and each of its words is shown at the member that it is about.
import { button, fill, h } from './elements.ts';

export interface SchemaForm {
  element: HTMLElement;
  /** What is written, members that were left empty not among it. Throws a FieldError where JSON was asked for and is none. */
  read(): Record<string, unknown>;
  /** Shows the server's words, by path below the form such as `times` or `edits[0].text`; gives back those that found no place. */
  showFaults(faults: readonly { path: string; message: string }[]): { path: string; message: string }[];
}

export class FieldError extends Error {
  override readonly name = 'FieldError';
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
  /** Undefined when nothing was given. */
  read(): unknown;
  /** By path relative to this field; the empty path is the field itself. */
  fault(path: string, message: string): boolean;
  clear(): void;
}

let lastId = 0;

/** `name` makes the ids of its fields unique on the page. */
export function createSchemaForm(schema: Schema, name: string): SchemaForm {
  const hasMembers = Object.keys(schema.properties ?? {}).length > 0;
  const takesAnything =
    !hasMembers && (schema as { additionalProperties?: unknown }).additionalProperties !== false;
  const root = hasMembers
    ? objectField(schema, name)
    : takesAnything
      ? jsonField({ ...schema, description: schema.description ?? 'An object in JSON.' }, name, true)
      : nothingField();
  return {
    element: h('div', { class: 'fields' }, root.element),
    read: () => (root.read() ?? {}) as Record<string, unknown>,
    showFaults(faults) {
      root.clear();
      return faults.filter(({ path, message }) => !root.fault(path, message));
    },
  };
}

function nothingField(): Field {
  return {
    element: h('p', { class: 'quiet' }, 'It takes nothing.'),
    read: () => undefined,
    fault: () => false,
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
        const value = field.read();
        return value === undefined ? [] : [[name, value] as const];
      });
      return members.length === 0 ? undefined : Object.fromEntries(members);
    },
    fault(fault, message) {
      const { name, rest } = split(fault);
      const field = fields.find(([candidate]) => candidate === name)?.[1];
      if (field === undefined) return false;
      return field.fault(rest, message);
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
    return nested(schema, options, objectField(schema, options.path));
  if (type === 'array' && schema.items !== undefined)
    return nested(schema, options, arrayField(schema, options));
  return labelled(schema, options, widget(schema, type, options));
}

function typeOf({ type, enum: words, properties }: Schema): string | undefined {
  if (words !== undefined) return 'enum';
  const types = typeof type === 'string' ? [type] : (type ?? []).filter((one) => one !== 'null');
  if (types.length === 1) return types[0];
  return properties === undefined ? undefined : 'object';
}

interface Widget {
  control: HTMLElement;
  read(): unknown;
}

function widget(schema: Schema, type: string | undefined, { name, path, isRequired }: MemberOptions): Widget {
  const id = `field-${path.replaceAll(/[^\w-]+/g, '-')}-${(lastId += 1)}`;
  const shared = { id, 'data-path': path, 'aria-required': isRequired ? 'true' : null, autocomplete: 'off' };
  const placeholder = schema.default === undefined ? '' : `${JSON.stringify(schema.default)} unless given`;
  if (type === 'enum') {
    const words = schema.enum ?? [];
    const control = h(
      'select',
      shared,
      h('option', { value: '' }, isRequired ? 'Choose …' : '(not given)'),
      words.map((word, index) => h('option', { value: index }, String(word as string))),
    );
    return { control, read: () => (control.value === '' ? undefined : words[Number(control.value)]) };
  }
  if (type === 'boolean') {
    const control = h(
      'select',
      shared,
      h('option', { value: '' }, '(not given)'),
      h('option', { value: 'true' }, 'yes'),
      h('option', { value: 'false' }, 'no'),
    );
    return { control, read: () => (control.value === '' ? undefined : control.value === 'true') };
  }
  if (type === 'integer' || type === 'number') {
    const bounds = [schema.minimum, schema.maximum].every((bound) => bound !== undefined)
      ? `${schema.minimum} to ${schema.maximum}`
      : '';
    // Not of the type number, which would hide from the server what was really written.
    const control = h('input', {
      ...shared,
      type: 'text',
      inputmode: type === 'integer' ? 'numeric' : 'decimal',
      placeholder: placeholder || bounds,
    });
    return {
      control,
      read() {
        const text = control.value.trim();
        return text === '' ? undefined : Number.isFinite(Number(text)) ? Number(text) : text;
      },
    };
  }
  if (type === 'string') {
    const isLong =
      (schema.maxLength ?? 0) > 1_000 ||
      /^(?:content|text|body|command|input|instructions|prompt|note)$/i.test(name);
    const isTime = schema.format === 'date-time';
    const control = isLong
      ? h('textarea', { ...shared, rows: 3, placeholder, spellcheck: 'false' })
      : h('input', {
          ...shared,
          type: 'text',
          placeholder: placeholder || (isTime ? '2026-11-20T09:00:00Z' : ''),
          spellcheck: 'false',
        });
    return { control, read: () => (control.value === '' ? undefined : control.value) };
  }
  return jsonWidget(shared, path, placeholder);
}

function jsonWidget(shared: Record<string, unknown>, path: string, placeholder: string): Widget {
  const control = h('textarea', {
    ...shared,
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
        throw new FieldError(path, 'is not JSON');
      }
    },
  };
}

function jsonField(schema: Schema, path: string, isRequired: boolean): Field {
  return labelled(
    schema,
    { name: 'payload', path, isRequired },
    jsonWidget({ id: `field-${(lastId += 1)}`, 'data-path': path }, path, '{}'),
  );
}

function labelled(schema: Schema, { name, isRequired }: MemberOptions, { control, read }: Widget): Field {
  const fault = h('p', { class: 'fault', id: `${control.id}-fault`, hidden: true });
  const help = h('p', { class: 'quiet', id: `${control.id}-help` }, schema.description ?? '');
  control.setAttribute('aria-describedby', `${help.id} ${fault.id}`);
  return {
    element: h(
      'div',
      { class: 'field' },
      h(
        'label',
        { for: control.id },
        schema.title ?? name,
        isRequired && h('span', { class: 'required', title: 'It has to be given' }, ' *'),
      ),
      control,
      schema.description !== undefined && help,
      fault,
    ),
    read,
    fault(_path, message) {
      fault.textContent = fault.hidden ? message : `${fault.textContent ?? ''}; ${message}`;
      fault.hidden = false;
      control.setAttribute('aria-invalid', 'true');
      return true;
    },
    clear() {
      fault.hidden = true;
      control.removeAttribute('aria-invalid');
    },
  };
}

function nested(schema: Schema, { name, isRequired }: MemberOptions, inner: Field): Field {
  const own = h('p', { class: 'fault', hidden: true });
  return {
    element: h(
      'fieldset',
      {},
      h('legend', {}, schema.title ?? name, isRequired && h('span', { class: 'required' }, ' *')),
      schema.description !== undefined && h('p', { class: 'quiet' }, schema.description),
      inner.element,
      own,
    ),
    read: () => inner.read(),
    fault(path, message) {
      if (path !== '' && inner.fault(path, message)) return true;
      own.textContent = path === '' ? message : `${path} ${message}`;
      own.hidden = false;
      return true;
    },
    clear() {
      own.hidden = true;
      inner.clear();
    },
  };
}

function arrayField(schema: Schema, { path, isRequired }: MemberOptions): Field {
  const items: Field[] = [];
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
            'Take out',
            () => {
              items.splice(index, 1);
              draw();
            },
            { class: 'plain small', 'aria-label': `Take out number ${index + 1}` },
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
    element: h('div', {}, rows, button('Add one', add, { class: 'plain small' })),
    read() {
      const values = items.map((item) => item.read()).filter((value) => value !== undefined);
      return values.length === 0 && !isRequired ? undefined : values;
    },
    fault(fault, message) {
      const { name, rest } = split(fault);
      return items[Number(name)]?.fault(rest, message) ?? false;
    },
    clear: () => items.forEach((item) => item.clear()),
  };
}

// `edits[0].text` is `edits`, then `0`, then `text`.
function split(path: string): { name: string; rest: string } {
  const [, name = '', rest = ''] = /^\[?([^.[\]]*)\]?\.?(.*)$/s.exec(path) ?? [];
  return { name, rest };
}
