// Measures how long hostile bodies block the event loop of each server, for every operation with a
// body, at the size limit of the operation. Prints a table and writes it to
// build/hostile-bodies.txt; exits 1 when a block exceeds the limit, or when nothing was measured.
//
//   node_modules/.bin/node test/fault-injection/hostile-bodies.ts [--operation ID] [--body TEXT]
//   [--runs 5] [--limit-ms 50] [--few] [--profile]
//
// --operation and --body select by a part of the name, --few fills each
// string only with the texts that have been slow, and --profile adds the functions that took the most time.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { exitWithUsageError, parseCommandLine } from '../../scripts/command-line.ts';
import { startWatchedServers } from '../support/watched-servers.ts';
import { bodiesFor, hostileOperations, measure, type Measurement, profile } from './hostile-run.ts';

const { values: options } = parseCommandLine(import.meta.filename, {
  options: {
    operation: { type: 'string', default: '' },
    body: { type: 'string', default: '' },
    runs: { type: 'string', default: '5' },
    'limit-ms': { type: 'string', default: '50' },
    few: { type: 'boolean', default: false },
    profile: { type: 'boolean', default: false },
  },
});
const limitMs = Number(options['limit-ms']);
const runs = Number(options.runs);
if (!(limitMs > 0))
  exitWithUsageError(import.meta.filename, `--limit-ms takes milliseconds, not "${options['limit-ms']}"`);
if (!(runs >= 1)) exitWithUsageError(import.meta.filename, `--runs takes a count, not "${options.runs}"`);
const lines: string[] = [];
const print = (line: string): void => {
  lines.push(line);
  console.log(line);
};

const servers = await startWatchedServers();
const measurements: Measurement[] = [];
try {
  await Promise.all([servers.gateway.waitForIdle(), servers.agent.waitForIdle()]);
  print('operation | body | MB | status | longest block: processor time (ms) | wall clock (ms) | runs');
  for (const operation of hostileOperations().filter(({ operationId }) =>
    operationId.includes(options.operation),
  )) {
    for (const body of bodiesFor(operation, {
      few: options.few,
      only: (name) => name.includes(options.body),
    })) {
      const measurement = await measure(servers, operation, body, { runs, limitMs });
      measurements.push(measurement);
      const { operationId, bytes, status, blockedMs, clockMs } = measurement;
      print(
        [
          operationId,
          body.name,
          (bytes / 1e6).toFixed(1),
          status,
          blockedMs.toFixed(0),
          clockMs.toFixed(0),
          measurement.runs,
        ].join(' | ') + (blockedMs > limitMs ? ' | TOO LONG' : ''),
      );
      if (options.profile) for (const line of await profile(servers, operation, body)) print(`    ${line}`);
    }
  }
} finally {
  await servers.close();
}
const slowMeasurements = measurements.filter(({ blockedMs }) => blockedMs > limitMs);
print(`${measurements.length} bodies, ${slowMeasurements.length} block the loop for more than ${limitMs} ms`);
const folder = join(import.meta.dirname, '../../build');
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, 'hostile-bodies.txt'), `${lines.join('\n')}\n`);
process.exitCode = measurements.length === 0 || slowMeasurements.length > 0 ? 1 : 0;
