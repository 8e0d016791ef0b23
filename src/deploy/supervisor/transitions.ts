// The states of the supervisor while one version replaces another, with a function for each transition. If a
// transition fails, the previous version keeps running or is started again.
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import type { CityFolder, CityState } from './city-folder.ts';
import type { Generation, GenerationSpec } from './generation.ts';
import { localUrl, openListeningSocket, type ListeningSocket } from '../../kernel/http/listening-socket.ts';

/** A version that is being deployed, and the version that it replaces. */
interface Handover {
  candidate: Generation;
  before: Generation | undefined;
  /** Whether both use the same embedded database, which only one process can open at a time. */
  isExclusive: boolean;
}

export type SupervisorState =
  | { phase: 'idle' }
  | { phase: 'serving'; current: Generation }
  /** The candidate has passed its trial; `before` is running. */
  | ({ phase: 'tried' } & Handover)
  /** The candidate is running; `before` is kept until the deployment confirms. */
  | ({ phase: 'switched' } & Handover);

/** The supervisor's data, which the transitions change. */
export interface SupervisorData {
  readonly folder: CityFolder;
  readonly clock: Clock;
  readonly log: Log;
  state: SupervisorState;
  /** The current activity of a transition, for `status`. */
  step: string | null;
  /** Replaced generations that are still finishing their requests. */
  readonly draining: Set<Promise<void>>;
  createGeneration(spec: GenerationSpec, socket: ListeningSocket, startMs: number): Generation;
}

export interface TrialRequest extends GenerationSpec {
  host: string;
  /** 0 keeps the bound port, or picks a free port if none is bound. */
  port: number;
  startMs: number;
}

export interface TrialResult {
  url: string;
  port: number;
}

/** Time limit for restarting a version. */
export const restartMs = 60_000;
// Most clients reuse or close a keep-alive connection within 3 s.
const handoverLingerMs = 3_000;
// Shorter, because the next version waits for the data meanwhile. Connections in use close after their next
// answer, so this time is only for idle connections.
export const exclusiveLingerMs = 1_500;
const maxVersions = 5;

/** The generation of the last confirmed deployment, even while a candidate exists. */
export function currentOf(state: SupervisorState): Generation | undefined {
  switch (state.phase) {
    case 'idle':
      return undefined;
    case 'serving':
      return state.current;
    case 'tried':
    case 'switched':
      return state.before;
  }
}

export function candidateOf(state: SupervisorState): Generation | undefined {
  return state.phase === 'tried' || state.phase === 'switched' ? state.candidate : undefined;
}

/**
 * idle or serving → tried. A candidate that does not start is stopped, and the state stays as it was.
 */
export async function tryVersion(supervisor: SupervisorData, request: TrialRequest): Promise<TrialResult> {
  // Deployments hold a lock, so an existing candidate belongs to a command that died.
  await abandon(supervisor);
  const { version, runner, env } = request;
  const before = currentOf(supervisor.state);
  const socket = socketFor(before, request.host, request.port);
  const candidate = supervisor.createGeneration({ version, runner, env }, socket, request.startMs);
  const isExclusive = before !== undefined && sharesEmbeddedDatabase(before.env, env);
  const handover: Handover = { candidate, before, isExclusive };
  supervisor.state = { phase: 'tried', ...handover };
  try {
    supervisor.step = isExclusive ? 'starting it on temporary data' : 'starting it';
    await (isExclusive ? candidate.rehearse() : candidate.start());
  } catch (error) {
    await dismiss(supervisor, handover, { lingerMs: 0 });
    throw error;
  }
  return { url: localUrl(socket.host, socket.port), port: socket.port };
}

/** tried → switched. On failure `before` runs again. */
export async function switchOver(supervisor: SupervisorData): Promise<void> {
  const { state } = supervisor;
  if (state.phase !== 'tried') throw noCandidate();
  const { candidate, before, isExclusive } = state;
  if (isExclusive && before !== undefined) {
    candidate.warm();
    supervisor.step = 'waiting for requests of the previous version';
    const { ended } = await before.leave({ lingerMs: exclusiveLingerMs });
    await ended;
    supervisor.step = 'opening the data with the new version';
  }
  try {
    if (isExclusive) await candidate.start();
    supervisor.step = 'handing over the address';
    await candidate.adopt();
  } catch (error) {
    await dismiss(supervisor, state, { lingerMs: 0 });
    await restartExclusive(supervisor, state);
    throw error;
  }
  supervisor.state = { phase: 'switched', candidate, before, isExclusive };
}

/** switched → serving. The replaced generation finishes its requests meanwhile. */
export async function confirm(supervisor: SupervisorData, cityState: CityState): Promise<void> {
  const { folder, log, state, draining } = supervisor;
  if (state.phase !== 'switched') throw noCandidate();
  const { candidate, before, isExclusive } = state;
  await folder.writeState(cityState);
  supervisor.state = { phase: 'serving', current: candidate };
  log.info({ version: candidate.version, before: before?.version ?? null }, 'a new version serves');
  if (before !== undefined && !isExclusive) {
    const { ended } = await before.leave({ lingerMs: handoverLingerMs });
    const end = ended.then(() => void draining.delete(end));
    draining.add(end);
  }
  // Close the previous address: otherwise its callers would wait in the queue of a socket from which no
  // process accepts.
  if (before !== undefined && before.socket !== candidate.socket) before.socket.close();
  // The deployment is complete. An error here would make the command undo it, and delete the running version.
  await removeOldVersions(folder, cityState).catch((error: unknown) =>
    log.warn({ err: error }, 'old versions could not be removed'),
  );
}

/** tried or switched → idle, or serving with `before`. Other states stay as they are. */
export async function abandon(supervisor: SupervisorData): Promise<void> {
  const { state } = supervisor;
  if (state.phase === 'tried') await dismiss(supervisor, state, { lingerMs: 0 });
  if (state.phase === 'switched') {
    await dismiss(supervisor, state, { lingerMs: handoverLingerMs });
    await restartExclusive(supervisor, state);
  }
}

/** Returns the candidate. Throws when no version is being deployed. */
export function requireCandidate({ state }: SupervisorData): Generation {
  const candidate = candidateOf(state);
  if (candidate === undefined) throw noCandidate();
  return candidate;
}

function noCandidate(): Problem {
  return new Problem('conflict', 'conflict', 'No new version is being deployed.');
}

async function dismiss(
  supervisor: SupervisorData,
  { candidate, before }: Handover,
  { lingerMs }: { lingerMs: number },
): Promise<void> {
  supervisor.state = before === undefined ? { phase: 'idle' } : { phase: 'serving', current: before };
  const { ended } = await candidate.leave({ lingerMs });
  await ended;
  if (candidate.socket !== before?.socket) candidate.socket.close();
}

/**
 * Starts `before` again if it had to stop for the candidate because both use the same embedded database. If
 * the start fails, it is repeated in the background.
 */
async function restartExclusive(
  supervisor: SupervisorData,
  { before, isExclusive }: Handover,
): Promise<void> {
  if (!isExclusive || before === undefined) return;
  const { version, runner, env, socket } = before;
  const current = supervisor.createGeneration({ version, runner, env }, socket, restartMs);
  supervisor.state = { phase: 'serving', current };
  try {
    await current.start();
    await current.adopt();
  } catch (error) {
    supervisor.log.error({ err: error, version }, 'the previous version could not be restarted; retrying');
    current.revive();
  }
}

function socketFor(before: Generation | undefined, host: string, port: number): ListeningSocket {
  const socket = before?.socket;
  if (socket !== undefined && socket.host === host && (port === 0 || port === socket.port)) return socket;
  return openListeningSocket(host, port);
}

function sharesEmbeddedDatabase(oldEnv: GenerationSpec['env'], newEnv: GenerationSpec['env']): boolean {
  return (
    oldEnv['DATABASE_URL'] === undefined &&
    newEnv['DATABASE_URL'] === undefined &&
    oldEnv['DATABASE_PATH'] === newEnv['DATABASE_PATH']
  );
}

/** Keeps `maxVersions`: the running version, the previous version, and the newest of the others. */
async function removeOldVersions(folder: CityFolder, { version, previous }: CityState): Promise<void> {
  const oldVersions = (await folder.versions()).filter((name) => name !== version && name !== previous);
  for (const name of oldVersions.slice(0, Math.max(0, oldVersions.length - maxVersions + 2)))
    await folder.removeVersion(name);
}
