// The settings of a program: one table gives each setting its environment key, flag,
// default and purpose. Flags win over the environment. Secrets have no flag, because
// every user of a machine can read the arguments of a process.

/** One row of a settings table. */
export interface Setting<T> {
  /** The environment key, such as `DATABASE_URL`. */
  key: string;
  /** One line of `--help` and of the guide. */
  description: string;
  /** The flag without its dashes; null when there is none. */
  flag: string | null;
  /** Whether the flag may be repeated; its values are joined by commas. */
  isRepeatable?: boolean;
  /** Whether the flag stands alone and means `true`. */
  isSwitch?: boolean;
  /** The value when neither flag nor environment gives one. */
  fallback: T;
  /** How `--help` shows the default; absent when there is none. */
  shownDefault?: string;
  /** Throws a SettingError for an invalid value. */
  parse(text: string): T;
}

/**
 * An invalid setting; the message has its name and its valid values. The command line exits with 2.
 */
export class SettingError extends Error {
  override name: string = 'SettingError';
}

type Values<Table extends Record<string, Setting<unknown>>> = {
  [Name in keyof Table]: Table[Name] extends Setting<infer T> ? T : never;
};

/**
 * Reads a whole table. An empty string counts as absent. Throws a SettingError for
 * unknown flags and invalid values.
 */
export function readSettings<Table extends Record<string, Setting<unknown>>>(
  table: Table,
  flags: Readonly<Record<string, string | undefined>>,
  env: Readonly<Record<string, string | undefined>>,
): Values<Table> {
  const tableFlags = new Set(Object.values(table).map(({ flag }) => flag));
  for (const flag of Object.keys(flags)) {
    if (!tableFlags.has(flag)) throw new SettingError(`--${flag} is not an option here; see --help.`);
  }
  const values: Record<string, unknown> = {};
  for (const [name, { key, flag, fallback, parse }] of Object.entries(table)) {
    const flagText = flag === null ? undefined : flags[flag];
    // `||` instead of `??`, so that an empty string counts as absent.
    const text = flagText || env[key] || undefined;
    values[name] = text === undefined ? fallback : parse(text);
  }
  return values as Values<Table>;
}

/** The lines of `--help` for a table: flag, key, purpose and default. */
export function describeSettings(table: Readonly<Record<string, Setting<unknown>>>): string {
  const rows = Object.values(table).map(({ flag, key, description, shownDefault }) => {
    const option = flag === null ? '' : `--${flag}`;
    const defaultNote = shownDefault === undefined ? '' : ` (${shownDefault})`;
    return { left: `  ${option.padEnd(26)} ${key}`, right: `${description}${defaultNote}` };
  });
  const width = Math.max(...rows.map((row) => row.left.length)) + 2;
  return rows.map((row) => `${row.left.padEnd(width)}${row.right}`).join('\n');
}

interface RowOptions {
  /** The flag's name; null for none. The key in kebab-case when absent. */
  flag?: string | null;
  isRepeatable?: boolean;
}

type Bounds = RowOptions & { min: number; max: number };

/** A string without a default. */
export function optionalText(
  key: string,
  description: string,
  options: RowOptions = {},
): Setting<string | undefined> {
  return { ...row(key, description, options), fallback: undefined, parse: (input) => input };
}

/** A string with a default. */
export function text(
  key: string,
  fallback: string,
  description: string,
  options: RowOptions = {},
): Setting<string> {
  return {
    ...row(key, description, options),
    fallback,
    shownDefault: fallback,
    parse: (input) => input,
  };
}

/** A secret: a string without a default and without a flag. */
export function secretText(key: string, description: string): Setting<string | undefined> {
  return optionalText(key, description, { flag: null });
}

/** The address of a PostgreSQL server. Errors do not repeat it, because it contains a password. */
export function postgresUrl(
  key: string,
  description: string,
  options: RowOptions = {},
): Setting<string | undefined> {
  return {
    ...row(key, description, options),
    fallback: undefined,
    parse(input) {
      if (isPostgresUrl(input)) return input;
      throw new SettingError(
        `${key} takes the address of a PostgreSQL server, such as postgres://user:password@127.0.0.1:5432/townhall.`,
      );
    },
  };
}

// libpq addresses may list several hosts, separated by commas. That is not a URL, so each host is
// parsed by itself.
function isPostgresUrl(input: string): boolean {
  const [, scheme, authority = '', rest = ''] = /^(postgres(?:ql)?):\/\/([^/?#]*)(.*)$/s.exec(input) ?? [];
  const hosts = authority.slice(authority.lastIndexOf('@') + 1);
  const credentials = authority.slice(0, authority.length - hosts.length);
  return (
    scheme !== undefined &&
    hosts.split(',').every((host) => URL.canParse(`${scheme}://${credentials}${host}${rest}`))
  );
}

/** A whole number within bounds. */
export function integer(key: string, fallback: number, description: string, bounds: Bounds): Setting<number> {
  return {
    ...row(key, description, bounds),
    fallback,
    shownDefault: String(fallback),
    parse: (input) => parseInteger(key, input, bounds),
  };
}

/** A whole number within bounds, without a default. */
export function optionalInteger(
  key: string,
  description: string,
  bounds: Bounds,
): Setting<number | undefined> {
  return {
    ...row(key, description, bounds),
    fallback: undefined,
    parse: (input) => parseInteger(key, input, bounds),
  };
}

function parseInteger(key: string, input: string, { min, max }: Bounds): number {
  const number = /^\d{1,15}$/.test(input) ? Number(input) : Number.NaN;
  if (number >= min && number <= max) return number;
  throw new SettingError(`${key} takes a whole number from ${min} to ${max}, not "${input}".`);
}

/** A limit per minute; `off` is null. */
export function rate(key: string, fallback: number, description: string): Setting<number | null> {
  return {
    ...row(key, description, {}),
    fallback,
    shownDefault: String(fallback),
    parse: (input) => (input === 'off' ? null : parseInteger(key, input, { min: 1, max: 1_000_000 })),
  };
}

/** One of a few words. */
export function choice<const Word extends string>(
  key: string,
  words: readonly Word[],
  fallback: Word,
  description: string,
  options: RowOptions = {},
): Setting<Word> {
  return {
    ...row(key, description, options),
    fallback,
    shownDefault: `${fallback}; one of ${words.join(', ')}`,
    parse(input) {
      const word = words.find((candidate) => candidate === input);
      if (word !== undefined) return word;
      throw new SettingError(`${key} takes one of ${words.join(', ')}, not "${input}".`);
    },
  };
}

/** `true` or `false`, without a default: for settings whose default depends on others. */
export function optionalSwitch(
  key: string,
  description: string,
  options: RowOptions = {},
): Setting<boolean | undefined> {
  return {
    ...row(key, description, options),
    fallback: undefined,
    parse(input) {
      if (input === 'true') return true;
      if (input === 'false') return false;
      throw new SettingError(`${key} takes true or false, not "${input}".`);
    },
  };
}

/** Off by default. The flag stands alone; the environment takes 1, true, 0 or false. */
export function flagSwitch(key: string, description: string, options: RowOptions = {}): Setting<boolean> {
  return {
    ...row(key, description, options),
    isSwitch: true,
    fallback: false,
    parse(input) {
      if (input === '1' || input === 'true') return true;
      if (input === '0' || input === 'false') return false;
      throw new SettingError(`${key} takes 1 or 0, not "${input}".`);
    },
  };
}

/** A list separated by commas; empty by default. */
export function list(key: string, description: string, options: RowOptions = {}): Setting<readonly string[]> {
  return {
    ...row(key, description, options),
    fallback: [],
    parse: (input) =>
      input
        .split(',')
        .map((item) => item.trim())
        .filter((item) => item !== ''),
  };
}

function row(
  key: string,
  description: string,
  { flag = key.toLowerCase().replaceAll('_', '-'), isRepeatable = false }: RowOptions,
): Pick<Setting<never>, 'key' | 'description' | 'flag' | 'isRepeatable'> {
  return { key, description, flag, isRepeatable };
}
