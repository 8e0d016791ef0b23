// The help texts: the overview of all commands, and one command's page, both rendered from the
// table entries.
import { describeSettings } from '../../kernel/settings.ts';
import { isInternalOption, optionsOf, usageOf, type Action, type Command } from './command.ts';

/** The text of `townhall --help`. */
export function renderOverview(entries: readonly { name: string; summary: string }[]): string {
  return [
    'Townhall: a model gateway and an agent runtime.',
    '',
    'Usage: townhall COMMAND [OPTIONS]',
    '',
    ...formatTwoColumns(entries.map(({ name, summary }) => [name, summary])),
    '',
    'townhall COMMAND --help explains a command; townhall --version prints the version.',
  ].join('\n');
}

/** The text of `townhall NAME --help`. */
export function renderHelp(name: string, { description, actions, notes = [] }: Command): string {
  const visibleActions = actions.filter(({ isInternal }) => isInternal !== true);
  const listedActions = visibleActions.filter(({ summary }) => summary !== undefined);
  const options = optionRows(visibleActions);
  const tables = visibleActions.flatMap(({ settings }) => (settings === undefined ? [] : [settings]));
  const sections = [
    usageLines(name, visibleActions),
    description,
    formatTwoColumns(listedActions.map((entry) => [usageOf(name, entry), entry.summary ?? ''])),
    formatTwoColumns(options),
    ...tables.map(({ table, sameAs }) =>
      sameAs === undefined
        ? [describeSettings(table)]
        : [`Also has the options and environment keys of "${sameAs}"; see its --help.`],
    ),
    notes,
  ];
  return sections
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.join('\n'))
    .join('\n\n');
}

function usageLines(name: string, actions: readonly Action[]): string[] {
  const usageWithOptions = (entry: Action): string =>
    optionsOf(entry).size === 0 ? usageOf(name, entry) : `${usageOf(name, entry)} [OPTIONS]`;
  // Actions with a summary are listed below instead.
  const usages = actions.filter(({ summary }) => summary === undefined).map(usageWithOptions);
  if (actions.some(({ summary }) => summary !== undefined)) usages.push(`townhall ${name} COMMAND [OPTIONS]`);
  return usages.map((usage, index) => `${index === 0 ? 'Usage:' : '      '} ${usage}`);
}

/**
 * The options with their summaries. The summary of an option that only some actions have begins with the
 * paths of these actions. Options of a settings table are left out: the help lists the whole table.
 */
function optionRows(actions: readonly Action[]): [string, string][] {
  const flags = new Set(
    actions.flatMap(({ settings }) => Object.values(settings?.table ?? {}).map(({ flag }) => flag)),
  );
  const rows = new Map<string, { usage: string; summary: string; paths: string[] }>();
  for (const entry of actions)
    for (const [option, spec] of optionsOf(entry)) {
      if (flags.has(option) || isInternalOption(spec)) continue;
      const usage = spec.kind === 'switch' ? `--${option}` : `--${option} ${spec.placeholder}`;
      const row = rows.get(option) ?? { usage, summary: spec.summary, paths: [] };
      rows.set(option, row);
      row.paths.push(entry.path ?? '');
    }
  return [...rows.values()].map(({ usage, summary, paths }) => {
    if (paths.length === actions.length) return [usage, summary];
    // An abbreviation such as JSON keeps its letters.
    const sentence = /^[A-Z]{2}/.test(summary)
      ? summary
      : `${summary.charAt(0).toLowerCase()}${summary.slice(1)}`;
    return [usage, `${paths.filter((path) => path !== '').join(', ')}: ${sentence}`];
  });
}

function formatTwoColumns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(0, ...rows.map(([label]) => label.length)) + 2;
  return rows.map(([label, text]) => `  ${label.padEnd(width)}${text}`);
}
