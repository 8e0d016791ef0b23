// The process that stays while versions of a City come and go. It owns the listening socket, starts the gateways that
// accept from it, and does what `townhall deploy` asks over its control socket. The rule it keeps: whatever fails on the
// way from one version to the next, the one that served goes on, or comes back.
import { readFile, rm, writeFile } from 'node:fs/promises';
import type { Clock } from '../../kernel/clock.ts';
import { serveControl, type Control } from '../../kernel/control.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { CityFolder, CityState } from '../city-folder.ts';
import { createGeneration, type Generation, type GenerationSpec } from './generation.ts';
import { localUrl, openListeningSocket, type ListeningSocket } from './listening-socket.ts';
import type { CityRecord } from './messages.ts';

export interface TrialRequest extends GenerationSpec {
  host: string;
  /** 0 keeps the port that is bound, or takes a free one. */
  port: number;
  startMs: number;
}

export interface TrialResult {
  url: string;
  port: number;
}

export interface SupervisorStatus {
  pid: number;
  url: string | null;
  version: string | null;
  gatewayPid: number | null;
  /** Whether its gateway takes callers at this moment. */
  isServing: boolean;
  restarts: number;
  /** A version that is on its way in. */
  candidate: string | null;
  step: string | null;
}

export interface SupervisorNeeds {
  folder: CityFolder;
  clock: Clock;
  log: Log;
  /** Takes what the gateways write. */
  write(piece: Buffer): void;
  pid: number;
  /** A deployment from which nothing more is heard is given up after this. */
  patienceMs?: number;
}

export interface Supervisor {
  /** Starts a version that was deployed before, and tries until it serves. */
  resume(spec: GenerationSpec, state: CityState): Promise<void>;
  /** Ends what serves, then everything else. */
  stop(): Promise<void>;
  /** Resolves when it has stopped, by whoever's wish. */
  readonly stopped: Promise<void>;
}

interface Candidate {
  generation: Generation;
  /** Whether it and the one that serves cannot have their data at the same time. */
  isExclusive: boolean;
  hasSwitched: boolean;
}

const keptVersions = 5;
const startMs = 60_000;
// Keep-alive connections of most clients are used again or let go within this.
const handOverLingerMs = 3_000;
// The successor waits for the data meanwhile. Connections that are in use close with their next answer, and the wait is
// over with the last of them, so that this is only for those that are idle.
const exclusiveLingerMs = 1_500;

export async function startSupervisor(needs: SupervisorNeeds): Promise<Supervisor> {
  const { folder, clock, log } = needs;
  const patienceMs = needs.patienceMs ?? 120_000;
  const stopped = Promise.withResolvers<void>();
  const leaving = new Set<Promise<void>>();
  let current: Generation | undefined;
  let candidate: Candidate | undefined;
  let step: string | null = null;
  let generations = 0;
  let stopAsked: Promise<void> | undefined;
  let patience: NodeJS.Timeout | undefined;
  let isBusy = false;

  function make(spec: GenerationSpec, socket: ListeningSocket, deadlineMs: number): Generation {
    generations += 1;
    return createGeneration(spec, {
      folder,
      socket,
      number: generations,
      clock,
      log,
      write: needs.write,
      startMs: deadlineMs,
    });
  }

  function expectMore(): void {
    clearTimeout(patience);
    patience = setTimeout(() => {
      log.warn({}, 'nothing more was heard of a deployment, which is given up');
      void oneAtATime(abandonOrEnd).catch((error: unknown) =>
        log.error({ err: error }, 'a deployment could not be given up'),
      );
    }, patienceMs);
  }

  /** The messages of what fails here are for whoever deploys. */
  async function oneAtATime<T>(work: () => Promise<T>): Promise<T> {
    if (isBusy) throw new Problem('conflict', 'conflict', 'Another deployment of this City is under way.');
    isBusy = true;
    try {
      return await work();
    } catch (error) {
      if (error instanceof Problem) throw error;
      throw new Problem('unavailable', 'not_ready', error instanceof Error ? error.message : String(error), {
        cause: error,
      });
    } finally {
      isBusy = false;
      step = null;
    }
  }

  function socketFor(host: string, port: number): ListeningSocket {
    const bound = current?.socket;
    if (bound !== undefined && bound.host === host && (port === 0 || port === bound.port)) return bound;
    return openListeningSocket(host, port);
  }

  async function trial(request: TrialRequest): Promise<TrialResult> {
    // Deployments hold a lock of their own, so the command that left this one here is dead.
    await abandon();
    const { version, runner, env } = request;
    const socket = socketFor(request.host, request.port);
    const generation = make({ version, runner, env }, socket, request.startMs);
    const isExclusive =
      current !== undefined &&
      env['DATABASE_URL'] === undefined &&
      current.env['DATABASE_URL'] === undefined &&
      current.env['DATABASE_PATH'] === env['DATABASE_PATH'];
    candidate = { generation, isExclusive, hasSwitched: false };
    try {
      step = isExclusive ? 'starting it on data of its own' : 'starting it';
      await (isExclusive ? generation.rehearse() : generation.start());
    } catch (error) {
      await dismiss(candidate);
      throw error;
    }
    expectMore();
    return { url: localUrl(socket.host, socket.port), port: socket.port };
  }

  async function takeOver(): Promise<void> {
    const { generation, isExclusive } = required();
    const before = current;
    if (isExclusive && before !== undefined) {
      generation.warm();
      step = 'letting the version before finish';
      await (
        await before.leave({ lingerMs: exclusiveLingerMs })
      ).ended;
      step = 'opening the data with it';
    }
    try {
      if (isExclusive) await generation.start();
      step = 'handing over the address';
      await generation.adopt();
    } catch (error) {
      await giveBack(required());
      throw error;
    }
    if (candidate !== undefined) candidate.hasSwitched = true;
    expectMore();
  }

  /** The candidate goes, and whoever served before it serves. */
  async function giveBack(given: Candidate): Promise<void> {
    const before = current;
    await dismiss(given);
    if (!given.isExclusive || before === undefined) return;
    const again = make(before, before.socket, startMs);
    current = again;
    try {
      await again.start();
      await again.adopt();
    } catch (error) {
      log.error(
        { err: error, version: before.version },
        'the version before could not be brought back at once',
      );
      again.revive();
    }
  }

  async function dismiss(given: Candidate): Promise<void> {
    candidate = undefined;
    clearTimeout(patience);
    await (
      await given.generation.leave({ lingerMs: given.hasSwitched ? handOverLingerMs : 0 })
    ).ended;
    if (given.generation.socket !== current?.socket) given.generation.socket.close();
  }

  async function abandon(): Promise<void> {
    if (candidate === undefined) return;
    await (candidate.hasSwitched ? giveBack(candidate) : dismiss(candidate));
  }

  async function abandonOrEnd(): Promise<void> {
    await abandon();
    // Nothing serves, and nothing did: what was started for a deployment goes with it.
    if (current === undefined) stopAsked ??= stop();
  }

  async function confirm(state: CityState): Promise<void> {
    const { generation, isExclusive } = required();
    const before = current;
    await folder.writeState(state);
    candidate = undefined;
    clearTimeout(patience);
    current = generation;
    log.info({ version: generation.version, before: before?.version ?? null }, 'a new version serves');
    if (before !== undefined && !isExclusive) {
      const { ended } = await before.leave({ lingerMs: handOverLingerMs });
      const left = ended.then(() => void leaving.delete(left));
      leaving.add(left);
    }
    // Whoever still calls the former address is to be refused, and not to wait for an answer that nobody gives.
    if (before !== undefined && before.socket !== generation.socket) before.socket.close();
    await prune(state);
  }

  async function prune({ version, previous }: CityState): Promise<void> {
    const old = (await folder.versions()).filter((name) => name !== version && name !== previous);
    for (const name of old.slice(0, Math.max(0, old.length - keptVersions + 2)))
      await folder.removeVersion(name);
  }

  function required(): Candidate {
    if (candidate === undefined)
      throw new Problem('conflict', 'conflict', 'No new version is on its way in.');
    return candidate;
  }

  function status(): SupervisorStatus {
    const socket = current?.socket;
    return {
      pid: needs.pid,
      url: socket === undefined ? null : localUrl(socket.host, socket.port),
      version: current?.version ?? null,
      gatewayPid: current?.pid ?? null,
      isServing: current?.isServing ?? false,
      restarts: current?.restarts ?? 0,
      candidate: candidate?.generation.version ?? null,
      step,
    };
  }

  async function stop(): Promise<void> {
    clearTimeout(patience);
    const parting = [candidate?.generation, current].map(
      async (generation) => (await generation?.leave({ lingerMs: exclusiveLingerMs }))?.ended,
    );
    await Promise.all([...parting, ...leaving]);
    current?.socket.close();
    // It answers whoever asked for this, so it cannot be waited for here.
    void control?.close().then(async () => {
      await rm(folder.pidFile, { force: true });
      stopped.resolve();
    });
  }

  const control: Control | undefined = await serveControl(
    folder.socket,
    {
      status: async () => status(),
      trial: (input) => oneAtATime(() => trial(input as TrialRequest)),
      switch: () => oneAtATime(takeOver),
      record: (input) => oneAtATime(() => required().generation.record(input as CityRecord)),
      confirm: (input) => oneAtATime(() => confirm(input as CityState)),
      abandon: () => oneAtATime(abandonOrEnd),
      stop: () => (stopAsked ??= stop()),
    },
    { log },
  );
  await writeFile(folder.pidFile, `${needs.pid}\n`, { mode: 0o600 }).catch(async (error: unknown) => {
    await control.close();
    throw error;
  });
  // Whoever started it for a deployment may be gone before the first word.
  expectMore();

  return {
    stopped: stopped.promise,
    async resume(spec, state) {
      clearTimeout(patience);
      current = make(spec, openListeningSocket(state.host, state.port), startMs);
      try {
        await current.start();
        await current.adopt();
        log.info({ version: spec.version, url: state.url }, 'the City serves');
      } catch (error) {
        log.error({ err: error, version: spec.version }, 'the City could not be started and is tried again');
        current.revive();
      }
    },
    async stop() {
      await (stopAsked ??= stop());
      await stopped.promise;
    },
  };
}

/** The process id of the supervisor that runs or ran, for people alone. */
export async function readPid(folder: CityFolder): Promise<number | null> {
  const text = await readFile(folder.pidFile, 'utf8').catch(() => '');
  return /^\d+$/.test(text.trim()) ? Number(text) : null;
}
