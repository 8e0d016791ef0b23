// `townhall city`: operates what `townhall deploy` has deployed. Its internal actions are processes
// of the deployment: `serve` is a gateway under the supervisor, `check` inspects the entry of a
// project.
import { on } from 'node:events';
import { createReadStream, existsSync, watch } from 'node:fs';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import {
  cityFolder,
  logFileNames,
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
  if (running !== null)
    throw new Error(
      running.version === null
        ? 'The first deployment from here is under way.'
        : `Version ${running.version} is already running at ${running.url}.`,
    );
  if (state === null) throw new Error('Nothing has been deployed from here yet; run: townhall deploy');
  const startMs = readTimeoutMs(options.timeout);
  const plan = await planOf(folder.versionPath(state.version), context, { cityDirectory: directory });
  await startDetached({
    folder,
    runner: ownRunner(),
    env: plan.gatewayEnv,
    clock: systemClock,
    isForDeployment: false,
  });
  const { version, url } = await waitUntilServing(folder, startMs);
  if (options.json) context.print(JSON.stringify({ outcome: 'started', version, url }));
  else context.print(`${version} serves at ${url}`);
  return 0;
}

async function waitUntilServing(
  folder: CityFolder,
  startMs: number,
): Promise<NonNullable<Survey['running']>> {
  const supervisor = supervisorClient(folder);
  const deadlineMs = systemClock.monotonicMs() + startMs;
  for (;;) {
    const status = await supervisor.status();
    if (status === null) throw new Error(`The supervisor has exited; ${folder.logFile} has the reason.`);
    if (status.isServing) return status;
    if (systemClock.monotonicMs() > deadlineMs)
      throw new Error(
        `The version was not ready after ${startMs / 1_000} s; ${folder.logFile} has the reason.`,
      );
    await systemClock.sleep(100);
  }
}

async function printLogs({ options, ...context }: CityCall<{ follow: boolean }>): Promise<number> {
  const { logFile } = cityFolder(directoryOf(options));
  if (!existsSync(logFile)) throw new Error('Nothing has been deployed from here yet; run: townhall deploy');
  if (options.follow) await followLogs(logFile, context);
  else await printLines(createReadStream(logFile), emptyLine, context);
  return 0;
}

const emptyLine: Buffer = Buffer.alloc(0);

/** How far a log has been printed. */
interface LogPosition {
  /** The file by its inode, since a rotation renames it. */
  inode: number;
  offset: number;
  /** The text before the offset whose line is not complete yet. */
  partialLine: Buffer;
}

/** Prints the file and then each new line, until the reader of the output closes it. */
async function followLogs(logFile: string, context: CommandContext): Promise<void> {
  // Watch the folder: a watch of the file would end with its first rotation, which renames the file. The
  // watch begins before the first read, so that no line falls between the two.
  const watcher = watch(dirname(logFile));
  try {
    const changes = on(watcher, 'change');
    const { ino: inode } = await stat(logFile);
    let position = await printUnread(logFile, { inode, offset: 0, partialLine: emptyLine }, context);
    for await (const [, name] of changes) {
      if (name !== basename(logFile)) continue;
      position = await printUnread(logFile, position, context);
      if (!context.isOutputOpen()) break;
    }
  } finally {
    watcher.close();
  }
}

/** Prints what follows the position, in its file and in all newer ones. Returns the new position. */
async function printUnread(
  logFile: string,
  position: LogPosition,
  context: CommandContext,
): Promise<LogPosition> {
  const files = await openLogFiles(logFile);
  try {
    // Without the file of the position, which so many rotations have deleted, all files are newer.
    const first = Math.max(
      0,
      files.findIndex(({ inode }) => inode === position.inode),
    );
    let { partialLine } = position;
    let next = position;
    for (const { handle, inode } of files.slice(first)) {
      const start = inode === position.inode ? position.offset : 0;
      const chunks = handle.createReadStream({ start, autoClose: false });
      const { bytes, rest } = await printLines(chunks, partialLine, context);
      partialLine = rest;
      next = { inode, offset: start + bytes, partialLine };
    }
    return next;
  } finally {
    for (const { handle } of files) await handle.close();
  }
}

/** The existing files of the log, the oldest first. */
async function openLogFiles(logFile: string): Promise<{ handle: FileHandle; inode: number }[]> {
  const files: { handle: FileHandle; inode: number }[] = [];
  // Open the newest first: a rotation meanwhile gives files older names, so this order misses none of them,
  // and may meet one twice. In the middle of a rotation the newest name does not exist.
  for (const name of logFileNames(logFile)) {
    const handle = await open(name).catch((error: unknown) => {
      if (isMissing(error)) return undefined;
      throw error;
    });
    if (handle === undefined) continue;
    const { ino: inode } = await handle.stat();
    if (files.some((file) => file.inode === inode)) await handle.close();
    else files.unshift({ handle, inode });
  }
  return files;
}

/**
 * Prints the complete lines, the first of which begins with `partialLine`. Returns the number of bytes that
 * it read and the text after the last complete line.
 */
async function printLines(
  chunks: AsyncIterable<Buffer>,
  partialLine: Buffer,
  { print, isOutputOpen }: CommandContext,
): Promise<{ bytes: number; rest: Buffer }> {
  let bytes = 0;
  let rest = partialLine;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    const end = chunk.lastIndexOf('\n');
    if (end < 0) {
      rest = Buffer.concat([rest, chunk]);
      continue;
    }
    const text = Buffer.concat([rest, chunk.subarray(0, end)]).toString('utf8');
    for (const line of text.split('\n')) print(line);
    rest = chunk.subarray(end + 1);
    if (!isOutputOpen()) break;
  }
  return { bytes, rest };
}

/** Prints the services that the entry of a project exports, as one line of JSON. */
async function inspectEntry({ options }: CityCall): Promise<number> {
  const services = await inspectProject(await openProject(directoryOf(options)));
  await new Promise<void>((finish) => process.stdout.write(`${JSON.stringify(services)}\n`, () => finish()));
  // The entry may have opened handles that would keep the process alive.
  process.exit(0);
}
