// docs/guides/settings.md lists every setting as its table defines it.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { agentSettings } from '../../src/agent/config.ts';
import { consoleSettings } from '../../src/console/config.ts';
import { gatewaySettings } from '../../src/gateway/config.ts';
import type { SettingsTable } from '../../src/cli/command-line/command.ts';

const guide = readFileSync(path.join(import.meta.dirname, '../../docs/guides/settings.md'), 'utf8');

/** Lines of the table below a heading of the guide. */
function tableUnder(heading: string): string[] {
  const [section = ''] = guide.split(`\n## ${heading}\n`)[1]?.split('\n## ', 1) ?? [];
  return section.split('\n').filter((line) => line.startsWith('| `'));
}

function rowsOf(table: SettingsTable): string[] {
  return Object.values(table).map(({ key, flag, shownDefault, description }) => {
    const option = flag === null ? '' : `\`--${flag}\``;
    return `| \`${key}\` | ${option} | ${shownDefault ?? ''} | ${description} |`;
  });
}

describe('the settings guide', () => {
  test.each([
    ['Gateway', gatewaySettings],
    ['Agent', agentSettings],
    ['Console', consoleSettings],
  ])('lists every setting of the %s with its option, default and purpose', (heading, table) => {
    expect(tableUnder(heading)).toEqual(rowsOf(table));
  });
});
