// Formats a log line for a terminal: time, level and message on one line, an error's stack below it.
import { styleText } from 'node:util';
import { isRecord, parseJsonOrUndefined } from '../../kernel/json-value.ts';
import { escapeControls } from '../command-line/escape-controls.ts';

export type LogLine = Readonly<Record<string, unknown>>;

/** The members of a JSON log line; undefined for any other text. */
export function parseLogLine(text: string): LogLine | undefined {
  const value = parseJsonOrUndefined(text);
  return isRecord(value) ? value : undefined;
}

/** Whether a line belongs to the request or the trace with this id. */
export function isAbout(line: LogLine, id: string): boolean {
  return [line['requestId'], line['clientRequestId'], line['traceId']].includes(id);
}

// Members that the line shows at a fixed place or leaves out; all others follow as name=value.
const placedMembers = new Set([
  'level',
  'time',
  'msg',
  'err',
  'method',
  'operationId',
  'path',
  'status',
  'ms',
  'code',
]);

/** Renders a log line. Colours appear only if standard output is a terminal that supports them. */
export function prettyLine(line: LogLine): string {
  const time = formatText(line['time']).slice(11, 23);
  const level = formatText(line['level']);
  const { status } = line;
  const subject =
    typeof status === 'number'
      ? [
          formatText(line['method']),
          formatText(line['operationId'] ?? line['path']),
          styleStatus(status),
          `${formatText(line['ms'])} ms`,
        ]
      : [formatText(line['msg'])];
  const members = Object.entries(line)
    .filter(([name, value]) => !placedMembers.has(name) && value !== null && value !== 0)
    .map(([name, value]) => `${styleText('dim', `${name}=`)}${formatText(value)}`);
  const code = line['code'] === undefined ? [] : [styleText('yellow', formatText(line['code']))];
  const head = [
    styleText('dim', time),
    styleText(levelColours[level] ?? 'white', level.padEnd(5)),
    ...subject,
    ...code,
    ...members,
  ].join(' ');
  return [head, ...stackOf(line['err'])].join('\n');
}

const levelColours: Readonly<Record<string, 'dim' | 'green' | 'yellow' | 'red'>> = {
  debug: 'dim',
  info: 'green',
  warn: 'yellow',
  error: 'red',
};

function styleStatus(status: number): string {
  const errorColor = status >= 500 ? 'red' : 'yellow';
  return styleText(status >= 400 ? errorColor : 'green', String(status));
}

function stackOf(error: unknown): string[] {
  if (typeof error !== 'object' || error === null) return [];
  const { stack, message, cause } = error as { stack?: unknown; message?: unknown; cause?: unknown };
  const description = [stack, message].find((member) => typeof member === 'string') ?? '';
  const lines = description.split('\n').map((line) => `    ${styleText('dim', escapeControls(line))}`);
  return [...(description === '' ? [] : lines), ...stackOf(cause)];
}

function formatText(value: unknown): string {
  return escapeControls(typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));
}
