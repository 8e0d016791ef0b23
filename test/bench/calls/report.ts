// Turns the rounds of all targets into a table with medians, ratios and targets, as
// text, Markdown and a plot.
import { median } from '../statistics.ts';
import type { Figures } from './measure.ts';

export interface TargetRounds {
  name: string;
  rounds: Figures[];
}

export type Medians = Record<keyof Figures, number | null>;

export interface TargetResult {
  name: string;
  medians: Medians;
}

/** A target of the gateway relative to a peer of the same run. */
export interface TargetCheck {
  title: string;
  target: string;
  value: number;
  isMet: boolean;
}

export function toResults(targets: readonly TargetRounds[]): TargetResult[] {
  return targets.map(({ name, rounds }) => ({ name, medians: mediansOf(rounds) }));
}

function mediansOf(rounds: readonly Figures[]): Medians {
  const keys = Object.keys(rounds[0] ?? {}) as (keyof Figures)[];
  const entries = keys.map((key) => {
    const values = rounds.map((round) => round[key]).filter((value) => value !== null);
    if (key === 'errors') return [key, values.reduce((sum, value) => sum + value, 0)];
    return [key, values.length === 0 ? null : median(values)];
  });
  return Object.fromEntries(entries) as Medians;
}

const columns: { title: string; digits: number; read(medians: Medians): number | null }[] = [
  { title: 'one client, p50 ms', digits: 2, read: ({ oneClientMs }) => oneClientMs },
  { title: '32 clients, calls/s', digits: 0, read: ({ perSecond }) => perSecond },
  { title: 'p99 ms', digits: 1, read: ({ p99Ms }) => p99Ms },
  { title: 'first byte ms', digits: 2, read: ({ firstByteMs }) => firstByteMs },
  { title: 'streams/s, 16', digits: 0, read: ({ streamsPerSecond }) => streamsPerSecond },
  { title: 'CPU ms/call, main', digits: 2, read: ({ mainThreadMs }) => mainThreadMs },
  { title: 'other threads', digits: 2, read: ({ otherThreadsMs }) => otherThreadsMs },
  { title: 'stream, main', digits: 2, read: ({ streamMainMs }) => streamMainMs },
  { title: 'empty operation', digits: 2, read: ({ emptyMs }) => emptyMs },
  { title: 'memory MB', digits: 0, read: ({ memoryMb }) => memoryMb },
  { title: 'start ms', digits: 0, read: ({ startMs }) => startMs },
  { title: 'errors', digits: 0, read: ({ errors }) => errors },
];

function cellsOf({ name, medians }: TargetResult): string[] {
  return [name, ...columns.map(({ read, digits }) => read(medians)?.toFixed(digits) ?? '')];
}

export function formatTable(results: readonly TargetResult[]): string {
  const header = ['', ...columns.map(({ title }) => title)];
  const divider = header.map((_title, index) => (index === 0 ? '---' : '---:'));
  return [header, divider, ...results.map(cellsOf)].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** The targets of each gateway row for which both sides were measured. */
export function checkTargets(results: readonly TargetResult[]): TargetCheck[] {
  const provider = results.find(({ name }) => name === 'provider')?.medians;
  const relay = results.find(({ name }) => name === 'bare relay')?.medians;
  const peer = results.find(({ name }) => name.startsWith('Portkey'))?.medians;
  if (provider === undefined || relay === undefined) return [];
  return results
    .filter(({ name }) => name.startsWith('Townhall'))
    .flatMap((result) => checkRow(result, { provider, relay, peer }))
    .filter(({ value }) => !Number.isNaN(value));
}

/** NaN for a figure that was not measured. */
function figure(medians: Medians, key: keyof Figures): number {
  return medians[key] ?? Number.NaN;
}

interface References {
  provider: Medians;
  relay: Medians;
  peer: Medians | undefined;
}

function checkRow({ name, medians: gateway }: TargetResult, references: References): TargetCheck[] {
  const { provider, relay, peer } = references;
  const isFree = name.includes('free');
  const isEmbedded = name.includes('embedded');
  const atLeast = (title: string, value: number, limit: number): TargetCheck => ({
    title: `${name}: ${title}`,
    target: `≥ ${limit}`,
    value,
    isMet: value >= limit,
  });
  const atMost = (title: string, value: number, limit: number): TargetCheck => ({
    title: `${name}: ${title}`,
    target: `≤ ${limit}`,
    value,
    isMet: value <= limit,
  });
  const ratio = (key: keyof Figures, otherMedians: Medians) =>
    figure(gateway, key) / figure(otherMedians, key);
  const addedMs = (medians: Medians, key: 'oneClientMs' | 'firstByteMs') =>
    figure(medians, key) - figure(provider, key);
  const processorMs = (medians: Medians) =>
    figure(medians, 'mainThreadMs') + figure(medians, 'otherThreadsMs');
  return [
    atLeast('calls/s beside the relay', ratio('perSecond', relay), 0.5),
    atMost('processor time a call, main thread, ms', figure(gateway, 'mainThreadMs'), 0.3),
    atMost('processor time a call beside the relay', processorMs(gateway) / processorMs(relay), 1.5),
    atMost('added first byte, ms', addedMs(gateway, 'firstByteMs'), 1),
    ...(isEmbedded ? [atMost('start with data, ms', figure(gateway, 'startMs'), 1_000)] : []),
    ...(peer === undefined
      ? []
      : [
          atLeast('calls/s beside Portkey', ratio('perSecond', peer), 2.5),
          atLeast('streams/s beside Portkey', ratio('streamsPerSecond', peer), 3),
          atMost(
            'added time of one client beside Portkey',
            addedMs(gateway, 'oneClientMs') / addedMs(peer, 'oneClientMs'),
            isFree ? 0.5 : 1,
          ),
          atMost('memory beside Portkey', ratio('memoryMb', peer), isEmbedded ? 0.75 : 0.5),
        ]),
  ];
}

export function formatTargets(checks: readonly TargetCheck[]): string {
  const rows = checks.map(
    ({ title, target, value, isMet }) =>
      `| ${title} | ${target} | ${value.toFixed(2)} | ${isMet ? 'met' : 'missed'} |`,
  );
  return ['| target | wanted | measured | |', '| --- | ---: | ---: | --- |', ...rows].join('\n');
}

const barHeight = 22;
const labelWidth = 230;
const plotWidth = 760;

/** A bar chart of calls per second by target, in the reader's text color. */
export function drawPlot(results: readonly TargetResult[]): string {
  const gateways = results.filter(({ name }) => name !== 'provider');
  const highestRate = Math.max(...gateways.map(({ medians }) => medians.perSecond ?? 0));
  const height = 44 + gateways.length * (barHeight + 10);
  const bars = gateways.map(({ name, medians }, index) => {
    const y = 40 + index * (barHeight + 10);
    const perSecond = medians.perSecond ?? 0;
    const width = Math.round((perSecond / highestRate) * (plotWidth - labelWidth - 90));
    const fill = name.startsWith('Townhall') ? '#1f7a5a' : '#8c959f';
    return [
      `<text x="${labelWidth - 12}" y="${y + 16}" text-anchor="end">${name}</text>`,
      `<rect x="${labelWidth}" y="${y}" width="${width}" height="${barHeight}" rx="3" fill="${fill}"/>`,
      `<text x="${labelWidth + width + 8}" y="${y + 16}">${Math.round(perSecond)}</text>`,
    ].join('\n');
  });
  const title = 'Whole answers a second, 32 clients';
  const attributes = [
    'xmlns="http://www.w3.org/2000/svg"',
    `viewBox="0 0 ${plotWidth} ${height}" width="${plotWidth}" height="${height}"`,
    `role="img" aria-label="${title}"`,
    'font-family="system-ui, sans-serif" font-size="14" fill="#6e7781"',
  ];
  return [
    `<svg ${attributes.join(' ')}>`,
    `<title>${title}</title>`,
    `<text x="14" y="22" font-weight="600">${title}</text>`,
    ...bars,
    '</svg>\n',
  ].join('\n');
}
