// Settings of a program: one table says each setting's environment key, its flag, its default and what it is for.
// Flags win over the environment; a secret has no flag, since arguments are visible to every user of a machine.

/** One row of a settings table. The flag is the key in kebab-case unless the row says otherwise. */
export interface Setting<T> {
  /** The environment key, such as `DATABASE_URL`. */
  key: string;
  /** What it is for, in one line of `--help`. */
  description: string;
  /** The flag without its dashes, or null when there is none (secrets). */
  flag: string | null;
  /** How `--help` shows the default; absent when there is none. */
  shownDefault?: string;
  /** Turns the given text into the value, or the absence into the default. Throws a SettingError. */
  read(text: string | undefined): T;
}

/** A setting that cannot be used; its message names the setting and what it takes. A command exits 2 on it. */
export class SettingError extends Error {
  override name: string = 'SettingError';
}

type Values<Table extends Record<string, Setting<unknown>>> = {
  [Name in keyof Table]: Table[Name] extends Setting<infer T> ? T : never;
};

/** Reads a whole table. Unknown flags are refused, an empty text counts as absent. */
export function readSettings<Table extends Record<string, Setting<unknown>>>(
  table: Table,
  flags: Readonly<Record<string, string | undefined>>,
  env: Readonly<Record<string, string | undefined>>,
): Values<Table> {
  const known = new Set(
    Object.values(table).flatMap((setting) => (setting.flag === null ? [] : [setting.flag])),
  );
  for (const flag of Object.keys(flags)) {
    if (!known.has(flag)) throw new SettingError(`--${flag} is not an option here; see --help.`);
  }
  const values: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(table)) {
    const flagged = setting.flag === null ? undefined : flags[setting.flag];
    values[name] = setting.read(present(flagged) ?? present(env[setting.key]));
  }
  return values as Values<Table>;
}

/** The lines of `--help` for a table: flag or key, default, purpose. */
export function describeSettings(table: Readonly<Record<string, Setting<unknown>>>): string {
  const rows = Object.values(table).map((setting) => {
    const flag = setting.flag === null ? '' : `--${setting.flag}`;
    const shown = setting.shownDefault === undefined ? '' : ` (${setting.shownDefault})`;
    return { left: `  ${flag.padEnd(26)} ${setting.key}`, right: `${setting.description}${shown}` };
  });
  const width = Math.max(...rows.map((row) => row.left.length)) + 2;
  return rows.map((row) => `${row.left.padEnd(width)}${row.right}`).join('\n');
}

interface Options {
  /** Overrides the flag's name; null for none. */
  flag?: string | null;
}

/** A text that may be absent. */
export function optionalText(
  key: string,
  description: string,
  options: Options = {},
): Setting<string | undefined> {
  return { ...common(key, description, options), read: (text) => text };
}

/** A text with a default. */
export function text(
  key: string,
  fallback: string,
  description: string,
  options: Options = {},
): Setting<string> {
  return { ...common(key, description, options), shownDefault: fallback, read: (given) => given ?? fallback };
}

/** A text that must not appear among a process's arguments. */
export function secretText(key: string, description: string): Setting<string | undefined> {
  return optionalText(key, description, { flag: null });
}

/** The address of a PostgreSQL. It carries a password, so a refusal does not repeat it. */
export function postgresUrl(
  key: string,
  description: string,
  options: Options = {},
): Setting<string | undefined> {
  return {
    ...common(key, description, options),
    read(given) {
      if (given !== undefined && !isPostgresUrl(given)) {
        throw new SettingError(
          `${key} takes the address of a PostgreSQL, such as postgres://user:password@127.0.0.1:5432/townhall.`,
        );
      }
      return given;
    },
  };
}

// An address may name several hosts, separated by commas, which are no URL until one of them is left.
function isPostgresUrl(given: string): boolean {
  const [, scheme, authority = '', rest = ''] = /^(postgres(?:ql)?):\/\/([^/?#]*)(.*)$/s.exec(given) ?? [];
  const host = authority.slice(authority.lastIndexOf('@') + 1);
  const credentials = authority.slice(0, authority.length - host.length);
  return (
    scheme !== undefined &&
    host.split(',').every((one) => URL.canParse(`${scheme}://${credentials}${one}${rest}`))
  );
}

/** A whole number within bounds. */
export function integer(
  key: string,
  fallback: number,
  description: string,
  bounds: Options & { min: number; max: number },
): Setting<number> {
  return {
    ...common(key, description, bounds),
    shownDefault: String(fallback),
    read(given) {
      if (given === undefined) return fallback;
      const value = /^\d{1,15}$/.test(given) ? Number(given) : Number.NaN;
      if (!(value >= bounds.min && value <= bounds.max)) {
        throw new SettingError(
          `${key} takes a whole number from ${bounds.min} to ${bounds.max}, not "${given}".`,
        );
      }
      return value;
    },
  };
}

/** A whole number within bounds that may be absent. */
export function optionalInteger(
  key: string,
  description: string,
  bounds: Options & { min: number; max: number },
): Setting<number | undefined> {
  const given = integer(key, bounds.min, description, bounds);
  return {
    ...common(key, description, bounds),
    read: (text) => (text === undefined ? undefined : given.read(text)),
  };
}

/** A limit a minute, or `off`, which is null. */
export function rate(key: string, fallback: number, description: string): Setting<number | null> {
  const bounded = integer(key, fallback, description, { min: 1, max: 1_000_000 });
  return { ...bounded, read: (given) => (given === 'off' ? null : bounded.read(given)) };
}

/** One of a few words. */
export function choice<const Word extends string>(
  key: string,
  words: readonly Word[],
  fallback: Word,
  description: string,
  options: Options = {},
): Setting<Word> {
  return {
    ...common(key, description, options),
    shownDefault: `${fallback}; one of ${words.join(', ')}`,
    read(given) {
      if (given === undefined) return fallback;
      const word = words.find((candidate) => candidate === given);
      if (word === undefined)
        throw new SettingError(`${key} takes one of ${words.join(', ')}, not "${given}".`);
      return word;
    },
  };
}

/** `true` or `false`; absent when not given, for settings whose default depends on others. */
export function optionalSwitch(
  key: string,
  description: string,
  options: Options = {},
): Setting<boolean | undefined> {
  return {
    ...common(key, description, options),
    read(given) {
      if (given === undefined) return undefined;
      if (given === 'true') return true;
      if (given === 'false') return false;
      throw new SettingError(`${key} takes true or false, not "${given}".`);
    },
  };
}

/** A list, separated by commas. */
export function list(key: string, description: string, options: Options = {}): Setting<readonly string[]> {
  return {
    ...common(key, description, options),
    read: (given) =>
      (given ?? '')
        .split(',')
        .map((item) => item.trim())
        .filter((item) => item !== ''),
  };
}

function common(
  key: string,
  description: string,
  options: Options,
): Pick<Setting<never>, 'key' | 'description' | 'flag'> {
  const flag = options.flag === undefined ? key.toLowerCase().replaceAll('_', '-') : options.flag;
  return { key, description, flag };
}

function present(given: string | undefined): string | undefined {
  return given === undefined || given === '' ? undefined : given;
}
