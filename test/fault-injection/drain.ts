// Sends SIGTERM while many streams run. New requests must be refused within a second, every stream
// must end by itself or with the `draining` error, every call must be settled, and the process must
// exit with 0 within 30 seconds.
//
//   node test/fault-injection/drain.ts [--streams 100] [--long 20] [--short-ms 10000] [--long-ms
//   120000] [--drain-ms 25000]
import { parseCommandLine } from '../../scripts/command-line.ts';
import { findViolations, drainUnderStreams } from './drain-run.ts';

const { values } = parseCommandLine(import.meta.filename, {
  options: {
    streams: { type: 'string', default: '100' },
    long: { type: 'string', default: '20' },
    'short-ms': { type: 'string', default: '10000' },
    'long-ms': { type: 'string', default: '120000' },
    'drain-ms': { type: 'string', default: '25000' },
  },
});
const options = {
  streams: Number(values.streams),
  longStreams: Number(values.long),
  shortMs: Number(values['short-ms']),
  longMs: Number(values['long-ms']),
  drainMs: Number(values['drain-ms']),
};
const result = await drainUnderStreams(options);
const violations = findViolations(result, options);
console.log(JSON.stringify({ ...result, violations }));
process.exitCode = violations.length > 0 ? 1 : 0;
