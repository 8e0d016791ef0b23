// The way of a project from its folder to what serves: provision, keep a copy, try it, switch, put it on record, raise
// the version, let the old one go. The rule it keeps: when a step fails, everything that callers and the author can see
// is as it was before.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { lockFolder } from '../kernel/data/embedded-lock.ts';
import type { Log } from '../kernel/log.ts';
import type { CityFolder, CityState } from './city-folder.ts';
import { makeDatabase } from './database.ts';
import { declarationSchema } from './declaration.ts';
import { askCity, askHealth } from './health.ts';
import { reachedAt, type Plan } from './plan.ts';
import { startDetached, supervisorClient, type SupervisorClient } from './supervision.ts';
import type { Runner } from './supervisor/gateway-process.ts';
import type { CityRecord } from './supervisor/messages.ts';

export type Step = 'provision' | 'keep' | 'supervise' | 'trial' | 'switch' | 'record' | 'raise' | 'confirm';

export interface DeployOptions {
  runner: Runner;
  clock: Clock;
  log: Log;
  /** How long the new version may take to be ready. */
  startMs: number;
  /** Told before each step, and of what it is busy with. A throw stops the deployment there. */
  progress(step: Step, what: string): void;
}

export interface Deployed {
  cityId: string;
  name: string;
  version: string;
  url: string;
  baseUrl: string;
}

/** What goes live: a copy of the project that is there already or has yet to be made. */
interface Release {
  /** Whether there is a copy to make and a version to raise. */
  isNew: boolean;
  /** Makes the copy and returns its name. */
  keep(): Promise<string>;
  /** Undoes `keep`. */
  drop(name: string): Promise<void>;
  /** The last step of all; undone by `restore`. */
  raise(): Promise<void>;
  restore(): Promise<void>;
}

/** Deploys what the plan says. Throws with the reason, and then nothing has changed. */
export async function deploy(plan: Plan, needs: DeployOptions): Promise<Deployed> {
  const { folder, version } = plan;
  return bringIn(plan, needs, {
    isNew: true,
    keep: () => folder.keep(version.next, version.raised),
    drop: (name) => folder.removeVersion(name),
    raise: () => version.raise(),
    restore: () => version.restore(),
  });
}

/** Brings a kept version back, the one before the present when none is named. The project's folder stays as it is. */
export async function rollBack(plan: Plan, to: string | null, needs: DeployOptions): Promise<Deployed> {
  const { folder, state } = plan;
  if (state === null) throw new Error('Nothing was deployed from here yet.');
  const target = to ?? state.previous;
  if (target === null) throw new Error('There is no version before this one.');
  const kept = await folder.versions();
  if (!kept.includes(target)) throw new Error(`Version ${target} is not kept; there are ${kept.join(', ')}.`);
  if (target === plan.running?.version) throw new Error(`Version ${target} is the one that serves.`);
  const nothing = async (): Promise<void> => {};
  return bringIn(plan, needs, {
    isNew: false,
    keep: async () => target,
    drop: nothing,
    raise: nothing,
    restore: nothing,
  });
}

async function bringIn(plan: Plan, needs: DeployOptions, release: Release): Promise<Deployed> {
  const { folder } = plan;
  const { progress } = needs;
  const undo: (() => Promise<unknown>)[] = [];
  const asked = supervisorClient(folder);
  await folder.make();
  const lock = await lockDeployment(folder);
  try {
    progress('provision', 'making what is missing');
    await provision(plan, needs);
    if (release.isNew) progress('keep', 'keeping a copy of the project');
    const name = await release.keep();
    undo.push(() => release.drop(name));
    progress('supervise', plan.running === null ? 'starting the supervisor' : 'asking the supervisor');
    if (plan.running === null)
      await startDetached({ ...needs, folder, env: plan.gatewayEnv, isForDeployment: true });
    undo.push(() => asked.abandon());
    progress('trial', `trying ${name}`);
    const { host, port } = plan.address;
    const tried = await told(asked, needs, () =>
      asked.trial({
        version: name,
        runner: needs.runner,
        env: plan.gatewayEnv,
        host,
        port,
        startMs: needs.startMs,
      }),
    );
    progress('switch', `switching to ${name}`);
    await told(asked, needs, () => asked.switch());
    await requireWell(tried.url, needs);
    const state = stateOf(plan, { name, tried });
    progress('record', 'putting the City on record');
    await asked.record(recordOf(state, 'live'));
    undo.push(() =>
      asked.record(plan.state === null ? recordOf(state, 'retired') : recordOf(plan.state, 'live')),
    );
    if (release.isNew) progress('raise', 'raising the version');
    undo.push(() => release.restore());
    await release.raise();
    progress('confirm', 'making it final');
    await asked.confirm(state);
    return { cityId: state.cityId, name: state.name, version: name, url: state.url, baseUrl: state.baseUrl };
  } catch (error) {
    for (const step of undo.reverse()) {
      await step().catch((failure: unknown) =>
        needs.log.warn({ err: failure }, 'a step of a failed deployment could not be taken back'),
      );
    }
    throw error;
  } finally {
    lock.release();
  }
}

async function lockDeployment(folder: CityFolder): Promise<{ release(): void }> {
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
  if (database !== null && !database.mustExist) await makeDatabase(database.url, database.name, log);
}

function stateOf(
  { declaration, address, baseUrl, state, running }: Plan,
  { name, tried }: { name: string; tried: { url: string; port: number } },
): CityState {
  const before = running?.version ?? state?.version ?? null;
  return {
    cityId: declaration.id,
    name: declaration.name,
    host: address.host,
    port: tried.port,
    url: tried.url,
    baseUrl: baseUrl ?? tried.url,
    version: name,
    previous: before === name ? (state?.previous ?? null) : before,
  };
}

function recordOf({ cityId, name, baseUrl, version }: CityState, status: CityRecord['status']): CityRecord {
  return { cityId, name, baseUrl, target: 'local', version, status };
}

const lookEveryMs = 250;

/** Does the work and tells meanwhile what the supervisor is busy with. */
async function told<T>(
  asked: SupervisorClient,
  { progress, clock }: DeployOptions,
  work: () => Promise<T>,
): Promise<T> {
  const done = new AbortController();
  const telling = (async () => {
    let last: string | null = null;
    while (!done.signal.aborted) {
      await clock.sleep(lookEveryMs, done.signal).catch(() => undefined);
      if (done.signal.aborted) return;
      const step = (await asked.status().catch(() => null))?.step ?? null;
      if (step !== null && step !== last) progress('trial', step);
      last = step;
    }
    // Whoever wants no more is heard at the next step of the deployment itself.
  })().catch(() => undefined);
  try {
    return await work();
  } finally {
    done.abort();
    await telling;
  }
}

const wellMs = 10_000;

/** As callers find it, through the address itself. */
async function requireWell(url: string, { clock }: Pick<DeployOptions, 'clock'>): Promise<void> {
  const lateMs = clock.monotonicMs() + wellMs;
  for (;;) {
    const { ready, problem } = await askHealth({ url });
    if (ready) return;
    if (clock.monotonicMs() > lateMs)
      throw new Error(`The new version does not answer at ${url}: ${problem ?? 'not ready'}.`);
    await clock.sleep(lookEveryMs);
  }
}

export interface Verification {
  ok: boolean;
  url: string;
  version: string | null;
  problem: string | null;
}

/** Looks at what runs and changes nothing. */
export async function verify(
  plan: Pick<Plan, 'declaration' | 'running' | 'state' | 'address'>,
): Promise<Verification> {
  const url = reachedAt(plan);
  // Which port a first deployment will take is known to nobody yet.
  if (plan.state === null && plan.running === null && plan.address.port === 0)
    return { ok: false, url, version: null, problem: 'nothing was deployed from here yet' };
  const { ready, problem } = await askHealth({ url });
  if (!ready) return { ok: false, url, version: null, problem };
  const city = await askCity({ url });
  if (city?.cityId !== plan.declaration.id)
    return {
      ok: false,
      url,
      version: null,
      problem: `what answers there is ${city === null ? 'no City on record' : `the City ${city.cityId}`} and not ${plan.declaration.id}`,
    };
  return { ok: true, url, version: city.version, problem: null };
}
