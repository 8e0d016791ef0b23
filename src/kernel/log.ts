// The log: one JSON object a line on standard output, and the only file that knows pino. Nothing secret
// gets out: members are hidden by their name and text by the secret values that are alive right now.
import { pino } from 'pino';
import type { Redactor } from './secret.ts';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  /** A log whose every line carries the fields too. */
  child(fields: object): Log;
}

export interface LogOptions {
  level: LogLevel;
  redactor: Redactor;
  /** Takes each line, its newline included. Without it lines go to standard output, written behind the caller's back and flushed at exit. */
  write?: (line: string) => void;
}

// Compared without case, hyphens and underscores. `value` is what the env service calls a secret.
const secretNames = new Set([
  'authorization', 'proxyauthorization', 'cookie', 'setcookie', 'password', 'passphrase', 'secret',
  'token', 'usertoken', 'admintoken', 'sessiontoken', 'accesstoken', 'refreshtoken', 'idtoken', 'bearer',
  'apikey', 'xapikey', 'xusertoken', 'clientsecret', 'webhooksecret', 'masterkey', 'privatekey',
  'logincode', 'loginid', 'codeverifier', 'credential', 'credentials',
]);
// Beyond this a structure is summed up in one word: a line is for reading.
const maximumDepth = 6;
const maximumEntries = 200;

// Lines are written a few milliseconds late and many at once: a write for each would cost every request a
// turn in the thread pool. What is left is written when the process exits.
const behind = { fd: 1, sync: false, minLength: 32 * 1024, maxWrite: 64 * 1024, periodicFlush: 20 };

export function createLog(options: LogOptions): Log {
  const { redactor, write } = options;
  const engine = pino(
    {
      level: options.level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      // What reaches pino is plain already; its own treatment of `err` would read past the redaction.
      serializers: {},
    },
    write ? { write } : pino.destination(behind),
  );
  // The bindings of a child are kept here and not in pino, so that a value which becomes a secret after
  // the child was made is hidden as well.
  function over(bound: object): Log {
    function line(level: 'debug' | 'info' | 'warn' | 'error', fields: object, message: string): void {
      if (!engine.isLevelEnabled(level)) return;
      engine[level](plainFields(bound, fields, redactor), redactor.hide(message));
    }
    return {
      debug: (fields, message) => line('debug', fields, message),
      info: (fields, message) => line('info', fields, message),
      warn: (fields, message) => line('warn', fields, message),
      error: (fields, message) => line('error', fields, message),
      child: (fields) => over({ ...bound, ...fields }),
    };
  }
  return over({});
}

function plainFields(bound: object, fields: object, redactor: Redactor): Record<string, unknown> {
  const plain: Record<string, unknown> = {};
  const walk: Walk = { redactor, depth: 0, above: [] };
  for (const source of [bound, fields]) {
    for (const [name, value] of Object.entries(source)) {
      // These three are the line's own; a field of that name would appear twice in it.
      const free = name === 'level' || name === 'time' || name === 'msg' ? `${name}_` : name;
      put(plain, free, value, walk);
    }
  }
  return plain;
}

interface Walk {
  redactor: Redactor;
  depth: number;
  /** The objects on the way down to here, to see a circle. */
  above: readonly object[];
}

function put(target: Record<string, unknown>, name: string, value: unknown, walk: Walk): void {
  const hides = value !== null && value !== undefined && isSecretName(name);
  const plain = hides ? '[redacted]' : plainValue(value, walk);
  const shown = walk.redactor.hide(name);
  // Assigning to `__proto__` would change the target instead.
  if (shown === '__proto__') Object.defineProperty(target, shown, { value: plain, enumerable: true, configurable: true });
  else target[shown] = plain;
}

function isSecretName(name: string): boolean {
  return secretNames.has(name) || (/[A-Z_-]/.test(name) && secretNames.has(name.toLowerCase().replace(/[-_]/g, '')));
}

function plainValue(value: unknown, walk: Walk): unknown {
  if (typeof value === 'string') return walk.redactor.hide(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'function' || typeof value === 'symbol') return `[${typeof value}]`;
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (walk.above.includes(value)) return '[circular]';
  if (walk.depth >= maximumDepth) return '[deep]';
  const below: Walk = { redactor: walk.redactor, depth: walk.depth + 1, above: [...walk.above, value] };
  if (Array.isArray(value)) return value.slice(0, maximumEntries).map((item) => plainValue(item, below));
  const entries = value instanceof Error ? errorEntries(value) : Object.entries(value);
  const plain: Record<string, unknown> = {};
  for (const [name, member] of entries.slice(0, maximumEntries)) put(plain, name, member, below);
  return plain;
}

// An error's own telling members are not enumerable.
function errorEntries(error: Error): [string, unknown][] {
  const entries: [string, unknown][] = [
    ['type', error.name],
    ['message', error.message],
    ['stack', error.stack],
    ...Object.entries(error).filter(([name]) => name !== 'name'),
  ];
  if (error.cause !== undefined) entries.push(['cause', error.cause]);
  return entries;
}
