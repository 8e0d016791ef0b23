// The log: one JSON object a line on standard output, and the only file that knows pino. Members are
// redacted by their name, and text by the secret values that are in use. A line is serialized first
// and scanned once as a whole; only a line that may hold a secret is redacted member by member.
import { pino } from 'pino';
import { type Clock, systemClock } from './clock.ts';
import type { Redactor } from './secrets/secret.ts';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  /** A log that adds the fields to every line. */
  child(fields: object): Log;
}

/** Drops every line. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => silentLog };

export interface LogOptions {
  level: LogLevel;
  redactor: Redactor;
  /**
   * Receives each line with its newline. Without this function lines go to standard output, written
   * asynchronously and flushed at exit.
   */
  write?: (line: string) => void;
  clock?: Pick<Clock, 'now'>;
}

// Names of members that hold secrets, in lower case and without hyphens and underscores.
const secretNames = new Set([
  'authorization',
  'proxyauthorization',
  'cookie',
  'setcookie',
  'password',
  'passphrase',
  'secret',
  'token',
  'usertoken',
  'admintoken',
  'sessiontoken',
  'accesstoken',
  'refreshtoken',
  'idtoken',
  'bearer',
  'apikey',
  'xapikey',
  'xgoogapikey',
  'xusertoken',
  'clientsecret',
  'webhooksecret',
  'masterkey',
  'privatekey',
  'logincode',
  'loginid',
  'codeverifier',
  'credential',
  'credentials',
]);
// Objects nested deeper are replaced by `[deep]`; further entries of an object or a list are dropped.
const maximumDepth = 6;
const maximumEntries = 200;
// The search for secrets takes up to 140 ns a character, and a caller may control the text.
const maximumTextLength = 16 * 1024;
// The part of a text that is searched for secrets. Where the text is longer, the end of this part may be
// the beginning of a secret, so that end is never shown.
const searchedTextLength = 4 * maximumTextLength;
const hiddenEndLength = maximumTextLength;

// Lines are written in batches, a few milliseconds late: a write for each would cost
// every request a turn in the thread pool. The rest is flushed when the process exits.
const batch = { fd: 1, sync: false, minLength: 32 * 1024, maxWrite: 64 * 1024 };
const flushMs = 20;

/**
 * Standard output. pino's own periodic flush would start a write 50 times a second
 * while there is nothing to write.
 */
function openStandardOutput(): LineWriter {
  const output = pino.destination(batch);
  let timer: NodeJS.Timeout | undefined;
  let hasLines = false;
  function flushSoon(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      output.flush();
    }, flushMs).unref();
  }
  // A flush during a write has no effect, so lines that arrive during a write are flushed after it.
  output.on('drain', () => {
    if (hasLines) flushSoon();
    hasLines = false;
  });
  return {
    write(line) {
      output.write(line);
      hasLines = true;
      flushSoon();
    },
  };
}

export function createLog(options: LogOptions): Log {
  const { redactor, write: writeLine } = options;
  const gate = createLineGate(redactor, writeLine ? { write: writeLine } : openStandardOutput());
  const engine = createEngine(options, gate);
  const fastWalk: Walk = {
    hide: identity,
    hideLong: (text) => shorten(text, redactor),
    isSecretName: createSecretNameCheck(),
    depth: 0,
    ancestors: [],
  };
  const redactingWalk: Walk = { ...fastWalk, hide: (text) => redactor.hide(text) };

  // The bindings of a child are kept here and not in pino, so that a value which becomes a secret after
  // the child was created is hidden as well.
  function createChild(bindings: object): Log {
    function write(level: 'debug' | 'info' | 'warn' | 'error', fields: object, message: string): void {
      if (!engine.isLevelEnabled(level)) return;
      // pino passes the finished line to the gate before it returns.
      const isPlain = bindings === noBindings && isPlainAlready(fields, fastWalk);
      engine[level](isPlain ? fields : plainFields(bindings, fields, fastWalk), message);
      if (gate.hasHeldBack())
        gate.passAll(() =>
          engine[level](plainFields(bindings, fields, redactingWalk), redactingWalk.hide(message)),
        );
    }
    return {
      debug: (fields, message) => write('debug', fields, message),
      info: (fields, message) => write('info', fields, message),
      warn: (fields, message) => write('warn', fields, message),
      error: (fields, message) => write('error', fields, message),
      child: (fields) => createChild({ ...bindings, ...fields }),
    };
  }
  return createChild(noBindings);
}

interface LineWriter {
  write(line: string): void;
}

/** Passes lines on, but holds back a line that may contain a secret: the log then writes it redacted. */
function createLineGate(redactor: Redactor, destination: LineWriter) {
  let passesAll = false;
  let hasHeldBack = false;
  return {
    write(line: string): void {
      hasHeldBack = !passesAll && redactor.suspects(line);
      if (!hasHeldBack) destination.write(line);
    },
    /** Whether the last line was held back. */
    hasHeldBack: () => hasHeldBack,
    /** Passes on all lines that the work writes. */
    passAll(work: () => void): void {
      passesAll = true;
      try {
        work();
      } finally {
        passesAll = false;
      }
    },
  };
}

function createEngine({ level, clock = systemClock }: LogOptions, destination: LineWriter) {
  return pino(
    {
      level,
      base: null,
      timestamp: createTimestamp(clock),
      formatters: { level: (label) => ({ level: label }) },
      // The values are plain already. Pino's own serializer would convert `err` again
      // and lose its type.
      serializers: { err: (plain: unknown) => plain },
    },
    destination,
  );
}

const noBindings = {};

// Caches the formatted time: under load many lines share a millisecond, and formatting it costs half as
// much as writing a whole line.
function createTimestamp(clock: Pick<Clock, 'now'>): () => string {
  let atMs = Number.NaN;
  let timestamp = '';
  return () => {
    const now = clock.now();
    if (now.getTime() !== atMs) {
      atMs = now.getTime();
      timestamp = `,"time":"${now.toISOString()}"`;
    }
    return timestamp;
  };
}

type Hide = (text: string) => string;
const identity: Hide = (text) => text;

/** The beginning of a long text, without secrets. */
function shorten(text: string, redactor: Redactor): string {
  const redactedText = redactor.hide(text.slice(0, searchedTextLength));
  const isWhole = text.length <= searchedTextLength;
  const safeLength = isWhole ? redactedText.length : Math.max(redactedText.length - hiddenEndLength, 0);
  return `${redactedText.slice(0, Math.min(maximumTextLength, safeLength))}… (${text.length} characters)`;
}

/**
 * Most lines are flat and hold no secret. They are written without a copy, which would cost more
 * than all other steps.
 */
function isPlainAlready(fields: object, { isSecretName }: Walk): boolean {
  for (const name in fields) {
    const value: unknown = (fields as Record<string, unknown>)[name];
    const isLong = typeof value === 'string' && value.length > maximumTextLength;
    const isLeaf =
      value === null ||
      (typeof value !== 'object' &&
        typeof value !== 'bigint' &&
        typeof value !== 'function' &&
        typeof value !== 'symbol');
    if (!isLeaf || isLong || isSecretName(name) || isOwnName(name)) return false;
  }
  return Object.getPrototypeOf(fields) === Object.prototype;
}

function plainFields(bindings: object, fields: object, walk: Walk): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const source of [bindings, fields] as Record<string, unknown>[])
    for (const name of Object.keys(source))
      put(result, isOwnName(name) ? `${name}_` : name, source[name], walk);
  return result;
}

/** Whether the line itself has a member of this name; a field of that name would appear twice in it. */
function isOwnName(name: string): boolean {
  return name === 'level' || name === 'time' || name === 'msg';
}

interface Walk {
  hide: Hide;
  /**
   * Shortens a text beyond the maximum length and hides secrets in it, even in a line that is not
   * suspected to hold a secret.
   */
  hideLong: Hide;
  isSecretName: (name: string) => boolean;
  depth: number;
  /** The objects that contain this value, to detect a cycle. */
  ancestors: readonly object[];
}

function put(target: Record<string, unknown>, name: string, value: unknown, walk: Walk): void {
  const isSecret = value !== null && value !== undefined && walk.isSecretName(name);
  const plainMember = isSecret ? '[redacted]' : plainValue(value, walk);
  const safeName = walk.hide(name);
  // Assigning to `__proto__` would change the target instead.
  if (safeName === '__proto__')
    Object.defineProperty(target, safeName, { value: plainMember, enumerable: true, configurable: true });
  else target[safeName] = plainMember;
}

// Names recur with every line, so verdicts are cached; callers invent some names, so the number is bounded.
const maximumVerdicts = 2_000;

function createSecretNameCheck(): (name: string) => boolean {
  const verdicts = new Map<string, boolean>();
  return (name) => {
    const cachedVerdict = verdicts.get(name);
    if (cachedVerdict !== undefined) return cachedVerdict;
    const verdict = secretNames.has(name.toLowerCase().replace(/[-_]/g, ''));
    if (verdicts.size < maximumVerdicts && name.length <= 64) verdicts.set(name, verdict);
    return verdict;
  };
}

function plainValue(value: unknown, walk: Walk): unknown {
  if (typeof value === 'string')
    return value.length > maximumTextLength ? walk.hideLong(value) : walk.hide(value);
  if (typeof value === 'number') return plainNumber(value, walk);
  if (typeof value === 'bigint') return walk.hide(value.toString());
  if (typeof value === 'function' || typeof value === 'symbol') return `[${typeof value}]`;
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (walk.ancestors.includes(value)) return '[circular]';
  if (walk.depth >= maximumDepth) return '[deep]';
  const nested: Walk = { ...walk, depth: walk.depth + 1, ancestors: [...walk.ancestors, value] };
  if (Array.isArray(value)) return value.slice(0, maximumEntries).map((item) => plainValue(item, nested));
  const entries = value instanceof Error ? errorEntries(value) : Object.entries(value);
  const plainRecord: Record<string, unknown> = {};
  for (const [name, member] of entries.slice(0, maximumEntries)) put(plainRecord, name, member, nested);
  return plainRecord;
}

// A secret of digits alone may reach the log as a number.
function plainNumber(value: number, { hide }: Walk): unknown {
  if (hide === identity) return value;
  const text = String(value);
  const redactedText = hide(text);
  return redactedText === text ? value : redactedText;
}

// `message`, `stack` and `cause` of an error are not enumerable.
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
