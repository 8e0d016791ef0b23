// A preload (`node --import`) for a server process: measures for how long its event loop was
// blocked, and reports over the IPC channel. Processor time of the main thread is independent of
// other work on the machine; wall-clock time also shows waits.
import { Session } from 'node:inspector/promises';
import { isMainThread } from 'node:worker_threads';

export interface LoopReport {
  /** The longest block since the last reset, in processor time of the main thread. */
  blockedMs: number;
  /** The longest block by wall clock. */
  clockMs: number;
  /** All processor time of the main thread. */
  spentMs: number;
}

export type LoopRequest =
  | { watch: 'reset' | 'read' }
  | { watch: 'block'; ms: number }
  | { watch: 'reference' | 'startProfile' | 'stopProfile' };

const intervalMs = 2;

if (isMainThread && process.send !== undefined) watch(process.send.bind(process));

function watch(send: (message: object) => void): void {
  let longestBlock: LoopReport = { blockedMs: 0, clockMs: 0, spentMs: 0 };
  let lastReading = { clock: performance.now(), spent: spentMs() };
  const measure = (): void => {
    const currentReading = { clock: performance.now(), spent: spentMs() };
    const clockMs = Math.max(currentReading.clock - lastReading.clock - intervalMs, 0);
    // Processor time is counted in steps of up to 4 ms, so it may run ahead of the clock.
    const blockedMs = Math.min(currentReading.spent - lastReading.spent, clockMs);
    longestBlock = {
      blockedMs: Math.max(longestBlock.blockedMs, blockedMs),
      clockMs: Math.max(longestBlock.clockMs, clockMs),
      spentMs: currentReading.spent,
    };
    lastReading = currentReading;
  };
  setInterval(measure, intervalMs).unref();
  const session = new Session();
  process.on('message', (request: LoopRequest) => {
    if (request.watch === 'startProfile') return void startProfile(session).then(() => send({}));
    if (request.watch === 'stopProfile') return void stopProfile(session).then((lines) => send({ lines }));
    if (request.watch === 'block') block(request.ms);
    if (request.watch === 'read') measure();
    const answer = request.watch === 'reference' ? { referenceMs: referenceMs() } : longestBlock;
    if (request.watch === 'reset') {
      lastReading = { clock: performance.now(), spent: spentMs() };
      longestBlock = { blockedMs: 0, clockMs: 0, spentMs: lastReading.spent };
    }
    send(answer);
    return undefined;
  });
  // The IPC channel must not keep a closed server alive.
  process.channel?.unref();
}

function spentMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

function block(ms: number): void {
  const endMs = spentMs() + ms;
  while (spentMs() < endMs);
}

/** Processor time of a fixed piece of work: the current speed of the machine. */
function referenceMs(): number {
  const text = JSON.stringify(
    Array.from({ length: 20_000 }, (_, index) => ({ role: 'user', content: `text ${index}` })),
  );
  const begin = spentMs();
  for (let round = 0; round < 4; round += 1) JSON.parse(text);
  return (spentMs() - begin) / 4;
}

async function startProfile(session: Session): Promise<void> {
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.start');
}

/** The functions in which the most time was spent, with their locations. */
async function stopProfile(session: Session): Promise<string[]> {
  const { profile } = await session.post('Profiler.stop');
  session.disconnect();
  const milliseconds = new Map<string, number>();
  const names = new Map(
    profile.nodes.map(({ id, callFrame: { functionName, url, lineNumber } }) => [
      id,
      `${functionName} ${url.split('/').slice(-4).join('/')}:${lineNumber + 1}`,
    ]),
  );
  for (const [index, id] of (profile.samples ?? []).entries()) {
    const name = names.get(id) ?? '';
    milliseconds.set(name, (milliseconds.get(name) ?? 0) + (profile.timeDeltas?.[index] ?? 0) / 1_000);
  }
  return [...milliseconds]
    .filter(([name]) => !name.startsWith('(idle)') && !name.startsWith('(program)'))
    .sort((a, b) => b[1] - a[1])
    .slice(0, 12)
    .map(([name, ms]) => `${ms.toFixed(0)} ms ${name}`);
}
