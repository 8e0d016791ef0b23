// Deploys a project in steps: create resources, copy the project, try the copy, switch to it, record the
// City, raise the version, confirm. When a step fails, the completed steps are undone in reverse order.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { lockFolder } from '../kernel/data/embedded/folder-lock.ts';
import type { Log } from '../kernel/log.ts';
import type { CityFolder, CityState } from './supervisor/city-folder.ts';
import { createDatabase } from './database.ts';
import { declarationSchema } from './declaration.ts';
import { checkHealth, fetchCity } from './supervisor/health.ts';
import { localAddress, type Plan } from './plan.ts';
import { startDetached, supervisorClient, type SupervisorClient } from './supervisor-client.ts';
import type { Runner } from './supervisor/gateway-process.ts';
import type { CityRecord } from './supervisor/messages.ts';

export type Step = 'provision' | 'keep' | 'supervise' | 'trial' | 'switch' | 'record' | 'raise' | 'confirm';

export interface DeployOptions {
  runner: Runner;
  clock: Clock;
  log: Log;
  /** The new version must be ready within this time. */
  startMs: number;
  /** Called before each step and for the activities within it. If it throws, the deployment stops there. */
  progress(step: Step, activity: string): void;
}

export interface Deployment {
  cityId: string;
  name: string;
  version: string;
  url: string;
  baseUrl: string;
}

/** The version to deploy: a new copy of the project, or a stored one. */
interface Release {
  /** Whether the project is copied and the version in package.json raised. */
  isNew: boolean;
  /** Makes the copy and returns its name. */
  keep(): Promise<string>;
  /** Undoes `keep`. */
  drop(name: string): Promise<void>;
  raise(): Promise<void>;
  /** Undoes `raise`. */
  restore(): Promise<void>;
}

/** Deploys by the plan. When it fails, it undoes all changes and throws the reason. */
export async function deploy(plan: Plan, options: DeployOptions): Promise<Deployment> {
  const { folder, version } = plan;
  return goLive(plan, options, {
    isNew: true,
    keep: async () => folder.keep(version.next, await version.raisedText()),
    drop: (name) => folder.removeVersion(name),
    raise: () => version.raise(),
    restore: () => version.restore(),
  });
}

/**
 * Deploys a stored version again, by default the previous version. The project's folder stays unchanged.
 */
export async function rollBack(plan: Plan, to: string | null, options: DeployOptions): Promise<Deployment> {
  const { folder, state } = plan;
  if (state === null) throw new Error('Nothing has been deployed from here yet.');
  const target = to ?? state.previous;
  if (target === null) throw new Error('There is no previous version to roll back to.');
  const versions = await folder.versions();
  if (!versions.includes(target))
    throw new Error(`Version ${target} is not stored; the stored versions are ${versions.join(', ')}.`);
  if (target === plan.running?.version) throw new Error(`Version ${target} is already running.`);
  const doNothing = async (): Promise<void> => {};
  return goLive(plan, options, {
    isNew: false,
    keep: async () => target,
    drop: doNothing,
    raise: doNothing,
    restore: doNothing,
  });
}

/** The undo functions of the completed steps, in the order of the steps. */
type UndoStack = (() => Promise<unknown>)[];

async function goLive(plan: Plan, options: DeployOptions, release: Release): Promise<Deployment> {
  await plan.folder.make();
  const lock = lockDeployment(plan.folder);
  const undo: UndoStack = [];
  try {
    return await runSteps(plan, options, { release, undo });
  } catch (error) {
    for (const undoStep of undo.toReversed()) {
      await undoStep().catch((failure: unknown) =>
        options.log.warn({ err: failure }, 'a step of a failed deployment could not be undone'),
      );
    }
    throw error;
  } finally {
    lock.release();
  }
}

async function runSteps(
  plan: Plan,
  options: DeployOptions,
  { release, undo }: { release: Release; undo: UndoStack },
): Promise<Deployment> {
  const { folder, running } = plan;
  const { progress, runner, startMs } = options;
  const supervisor = supervisorClient(folder);

  progress('provision', 'creating missing resources');
  await provision(plan, options);

  if (release.isNew) progress('keep', 'copying the project');
  const name = await release.keep();
  undo.push(() => release.drop(name));

  progress('supervise', running === null ? 'starting the supervisor' : 'asking the supervisor');
  if (running === null)
    await startDetached({ ...options, folder, env: plan.gatewayEnv, isForDeployment: true });
  undo.push(() => supervisor.abandon());

  progress('trial', `trying ${name}`);
  const request = { version: name, runner, env: plan.gatewayEnv, ...plan.address, startMs };
  const trialResult = await withSupervisorProgress(supervisor, 'trial', options, () =>
    supervisor.trial(request),
  );

  progress('switch', `switching to ${name}`);
  await withSupervisorProgress(supervisor, 'switch', options, () => supervisor.switch());
  await requireHealthy(trialResult.url, options);

  const state = nextState(plan, name, trialResult);
  progress('record', 'recording the City');
  await supervisor.record(recordOf(state, 'live'));
  const previousRecord = plan.state === null ? recordOf(state, 'retired') : recordOf(plan.state, 'live');
  undo.push(() => supervisor.record(previousRecord));

  if (release.isNew) progress('raise', 'raising the version');
  await release.raise();
  undo.push(() => release.restore());

  progress('confirm', 'confirming the new version');
  await supervisor.confirm(state);
  return { cityId: state.cityId, name: state.name, version: name, url: state.url, baseUrl: state.baseUrl };
}

function lockDeployment(folder: CityFolder): { release(): void } {
  try {
    return lockFolder(folder.root);
  } catch (cause) {
    throw new Error('Another deployment of this project is under way.', { cause });
  }
}

async function provision({ folder, folders, database }: Plan, { log }: DeployOptions): Promise<void> {
  for (const path of folders) await mkdir(path, { recursive: true, mode: 0o700 });
  await writeFile(
    join(folder.root, 'townhall.schema.json'),
    `${JSON.stringify(declarationSchema, null, 2)}\n`,
  );
  if (database !== null && !database.mustExist) await createDatabase(database.url, database.name, log);
}

function nextState(
  { declaration, address, baseUrl, state, running }: Plan,
  name: string,
  trialResult: { url: string; port: number },
): CityState {
  const replacedVersion = running?.version ?? state?.version ?? null;
  return {
    cityId: declaration.id,
    name: declaration.name,
    host: address.host,
    port: trialResult.port,
    url: trialResult.url,
    baseUrl: baseUrl ?? trialResult.url,
    version: name,
    previous: replacedVersion === name ? (state?.previous ?? null) : replacedVersion,
  };
}

function recordOf({ cityId, name, baseUrl, version }: CityState, status: CityRecord['status']): CityRecord {
  return { cityId, name, baseUrl, target: 'local', version, status };
}

const pollIntervalMs = 250;

/** Runs a request of the step to the supervisor and reports the supervisor's activity meanwhile. */
async function withSupervisorProgress<T>(
  supervisor: SupervisorClient,
  step: Step,
  { progress, clock }: DeployOptions,
  work: () => Promise<T>,
): Promise<T> {
  const completion = new AbortController();
  const poll = async (): Promise<void> => {
    let lastActivity: string | null = null;
    while (!completion.signal.aborted) {
      await clock.sleep(pollIntervalMs, completion.signal).catch(() => undefined);
      if (completion.signal.aborted) return;
      const activity = (await supervisor.status().catch(() => null))?.step ?? null;
      if (activity !== null && activity !== lastActivity) progress(step, activity);
      lastActivity = activity;
    }
  };
  // Ignore an error from `progress` here: it is thrown again before the next step and stops the deployment.
  const polling = poll().catch(() => undefined);
  try {
    return await work();
  } finally {
    completion.abort();
    await polling;
  }
}

const healthyTimeoutMs = 10_000;

/** Waits until the version answers at its public address. */
async function requireHealthy(url: string, { clock }: Pick<DeployOptions, 'clock'>): Promise<void> {
  const deadlineMs = clock.monotonicMs() + healthyTimeoutMs;
  for (;;) {
    const { ready, problem } = await checkHealth({ url });
    if (ready) return;
    if (clock.monotonicMs() > deadlineMs)
      throw new Error(`The new version does not answer at ${url}: ${problem ?? 'not ready'}.`);
    await clock.sleep(pollIntervalMs);
  }
}

export interface Verification {
  ok: boolean;
  url: string;
  version: string | null;
  problem: string | null;
}

/** Checks the running version and changes nothing. */
export async function verify(
  plan: Pick<Plan, 'declaration' | 'running' | 'state' | 'address'>,
): Promise<Verification> {
  const url = localAddress(plan);
  const refuse = (problem: string | null): Verification => ({ ok: false, url, version: null, problem });
  // The first deployment uses any free port, so there is no address to check yet.
  if (plan.state === null && plan.running === null && plan.address.port === 0)
    return refuse('nothing has been deployed from here yet');
  const { ready, problem } = await checkHealth({ url });
  if (!ready) return refuse(problem);
  const city = await fetchCity({ url });
  if (city === null)
    return refuse(`another server answers there: it has no City record, so it is not ${plan.declaration.id}`);
  if (city.cityId !== plan.declaration.id)
    return refuse(`the City ${city.cityId} answers there instead of ${plan.declaration.id}`);
  return { ok: true, url, version: city.version, problem: null };
}
