// `townhall city`: operates what `townhall deploy` has deployed. Its internal actions are processes
// of the deployment: `serve` is a gateway under the supervisor, `check` inspects the entry of a
// project.
import { createReadStream, existsSync } from 'node:fs';
import { stat, watch } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import {
  cityFolder,
  openProject,
  rollBack,
  startDetached,
  supervisorClient,
  survey,
} from '../../deploy/index.ts';
import type { CityFolder, Survey } from '../../deploy/index.ts';
import { inspectProject } from '../../gateway/compose.ts';
import { systemClock } from '../../kernel/clock.ts';
import { isMissing } from '../../kernel/file-errors.ts';
import { ownRunner } from '../city/environment.ts';
import { deployOptions, planOf, readTimeoutMs } from '../city/plan.ts';
import { runSupervisor } from '../city/run-supervisor.ts';
import { serveSupervised } from '../city/serve-supervised.ts';
import { stopCity } from '../city/stop.ts';
import {
  action,
  jsonOption,
  type ActionCall,
  type Command,
  type CommandContext,
} from '../command-line/command.ts';

const cityOptions = {
  project: { kind: 'value', placeholder: 'DIR', summary: 'The project folder (this folder).' },
  timeout: {
    kind: 'value',
    placeholder: 'SECONDS',
    summary: 'Seconds until a version has to be ready (60).',
  },
  json: jsonOption,
} as const;

type CityCall<O extends object = object> = Omit<ActionCall<typeof cityOptions>, 'options'> & {
  options: ActionCall<typeof cityOptions>['options'] & O;
};

export const command: Command = {
  description: ['Operates what "townhall deploy" has deployed.'],
  actions: [
    action({
      path: 'status',
      summary: 'Print the running version, its address and the stored versions; exits 1 when none runs.',
      options: cityOptions,
      run: printStatus,
    }),
    action({
      path: 'stop',
      summary: 'Finish the running requests and stop.',
      options: cityOptions,
      run: ({ options, ...context }) =>
        stopCity(cityFolder(directoryOf(options)), { ...context, isJson: options.json }),
    }),
    action({
      path: 'start',
      summary: 'Start the last deployed version again, as after a reboot; set the same environment.',
      options: cityOptions,
      run: startAgain,
    }),
    action({
      path: 'run',
      summary: 'Like start, but in the foreground, for a service manager.',
      options: {
        ...cityOptions,
        // A deployment starts the supervisor with these two options.
        detached: { kind: 'switch', summary: '', isInternal: true },
        wait: { kind: 'switch', summary: '', isInternal: true },
      },
      run: ({ options, env }) =>
        runSupervisor({
          directory: directoryOf(options),
          env,
          isDetached: options.detached,
          isForDeployment: options.wait,
        }),
    }),
    action({
      path: 'rollback',
      summary: 'Restore the previous version, or another stored version.',
      options: {
        to: { kind: 'value', placeholder: 'VERSION', summary: 'The version to restore (the previous one).' },
        ...cityOptions,
      },
      run: rollBackCity,
    }),
    action({
      path: 'logs',
      summary: 'Print the log.',
      options: { follow: { kind: 'switch', summary: 'Keep printing new lines.' }, ...cityOptions },
      run: printLogs,
    }),
    action({
      path: 'serve',
      isInternal: true,
      run: ({ env }) => serveSupervised(env),
    }),
    action({ path: 'check', isInternal: true, options: cityOptions, run: inspectEntry }),
  ],
};

function directoryOf({ project }: { project: string | undefined }): string {
  return resolve(project ?? '.');
}

async function printStatus({ options, env, print }: CityCall): Promise<number> {
  const { running, state, folder, declaration } = await survey({ directory: directoryOf(options), env });
  const versions = await folder.versions();
  const isLive = running !== null && running.version !== null;
  if (options.json)
    print(
      JSON.stringify({
        running: isLive,
        ...running,
        city_id: declaration.id,
        base_url: state?.baseUrl ?? null,
        kept: versions,
      }),
    );
  else if (isLive) {
    const rows = [
      ['city', `${declaration.name} (${declaration.id})`],
      ['version', running.version ?? ''],
      ['url', running.url ?? ''],
      ['gateway', `process ${running.gatewayPid ?? 'none'}, restarted ${running.restarts} times`],
      ['supervisor', `process ${running.pid}`],
      ['kept', versions.join(', ')],
    ];
    for (const [name = '', text = ''] of rows) print(`${name.padEnd(12)}${text}`);
  } else if (state === null) print('Nothing has been deployed from here yet.');
  else print(`Stopped; ${state.version} was deployed last. Start it: townhall city start`);
  return isLive ? 0 : 1;
}

async function rollBackCity({ options, ...context }: CityCall<{ to: string | undefined }>): Promise<number> {
  const { print, printError, env } = context;
  const printProgress = (line: string): void => (options.json ? printError(line) : print(line));
  const directory = directoryOf(options);
  const { folder, state } = await survey({ directory, env });
  const requestedVersion = options.to ?? null;
  const target = requestedVersion ?? state?.previous ?? null;
  // The version's own copy has its declaration, entry and services; address and folder belong to
  // the City.
  const hasCopy = target !== null && (await folder.versions()).includes(target);
  const projectPath = hasCopy ? folder.versionPath(target) : directory;
  const plan = await planOf(projectPath, context, { cityDirectory: directory });
  const startMs = readTimeoutMs(options.timeout);
  const { version, url } = await rollBack(plan, requestedVersion, deployOptions(printProgress, startMs));
  if (options.json) print(JSON.stringify({ outcome: 'rolled_back', version, url }));
  else print(`${version} serves at ${url}`);
  return 0;
}

async function startAgain({ options, ...context }: CityCall): Promise<number> {
  const directory = directoryOf(options);
  const { folder, state, running } = await survey({ directory, env: context.env });
  if (running !== null) throw new Error(`Version ${running.version} is already running at ${running.url}.`);
  if (state === null) throw new Error('Nothing has been deployed from here yet; run: townhall deploy');
  const plan = await planOf(folder.versionPath(state.version), context, { cityDirectory: directory });
  await startDetached({
    folder,
    runner: ownRunner(),
    env: plan.gatewayEnv,
    clock: systemClock,
    isForDeployment: false,
  });
  const { version, url } = await waitUntilServing(folder);
  if (options.json) context.print(JSON.stringify({ outcome: 'started', version, url }));
  else context.print(`${version} serves at ${url}`);
  return 0;
}

const servingTimeoutMs = 60_000;

async function waitUntilServing(folder: CityFolder): Promise<NonNullable<Survey['running']>> {
  const supervisor = supervisorClient(folder);
  const deadlineMs = systemClock.monotonicMs() + servingTimeoutMs;
  for (;;) {
    const status = await supervisor.status();
    if (status === null) throw new Error(`The supervisor has exited; ${folder.logFile} has the reason.`);
    if (status.isServing) return status;
    if (systemClock.monotonicMs() > deadlineMs)
      throw new Error(
        `The version was not ready after ${servingTimeoutMs / 1_000} s; ${folder.logFile} has the reason.`,
      );
    await systemClock.sleep(100);
  }
}

async function printLogs({ options, ...context }: CityCall<{ follow: boolean }>): Promise<number> {
  const { logFile } = cityFolder(directoryOf(options));
  if (!existsSync(logFile)) throw new Error('Nothing has been deployed from here yet; run: townhall deploy');
  let offset = await printFrom(logFile, 0, context);
  if (!options.follow) return 0;
  // Watch the folder: a watch of the file would end with its first rotation, which renames the file.
  for await (const { filename } of watch(dirname(logFile))) {
    if (filename !== basename(logFile)) continue;
    const size = await sizeOf(logFile);
    // In the middle of a rotation there is no file; its creation is the next change.
    if (size === undefined) continue;
    // The file was rotated.
    if (size < offset) offset = 0;
    offset = await printFrom(logFile, offset, context);
    if (!context.isOutputOpen()) break;
  }
  return 0;
}

/** Undefined when the file does not exist. */
async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Prints the complete lines from an offset and returns the offset after the last complete line. */
async function printFrom(
  path: string,
  start: number,
  { print, isOutputOpen }: CommandContext,
): Promise<number> {
  let partialLine = '';
  let offset = start;
  for await (const chunk of createReadStream(path, { start, encoding: 'utf8' }) as AsyncIterable<string>) {
    offset += Buffer.byteLength(chunk);
    const lines = (partialLine + chunk).split('\n');
    partialLine = lines.pop() ?? '';
    for (const line of lines) print(line);
    if (!isOutputOpen()) break;
  }
  return offset - Buffer.byteLength(partialLine);
}

/** Prints the services that the entry of a project exports, as one line of JSON. */
async function inspectEntry({ options }: CityCall): Promise<number> {
  const services = await inspectProject(await openProject(directoryOf(options)));
  await new Promise<void>((finish) => process.stdout.write(`${JSON.stringify(services)}\n`, () => finish()));
  // The entry may have opened handles that would keep the process alive.
  process.exit(0);
}
