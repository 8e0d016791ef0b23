// `townhall deploy`: deploys a project. Its other modes check, stop or render, and do not change
// the running version.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import {
  cityFolder,
  deploy,
  isRendered,
  readDeclaration,
  renderProject,
  supervisorClient,
  survey,
  verify,
} from '../../deploy/index.ts';
import type { Plan, Verification } from '../../deploy/index.ts';
import { SettingError } from '../../kernel/settings.ts';
import { ownRunner } from '../city/environment.ts';
import { deployOptions, planOf, readTimeoutMs } from '../city/plan.ts';
import { stopCity } from '../city/stop.ts';
import { action, jsonOption, type Command, type CommandContext } from '../command-line/command.ts';
import { version } from '../command-line/version.ts';

export const command: Command = {
  description: [
    'Deploys the project of this folder: creates missing resources, tries the new version, switches to it without',
    'downtime, and raises the version in package.json. When a step fails, the previous version keeps running.',
    'Settings come from the environment, as for "townhall gateway"; see its --help.',
  ],
  actions: [
    action({
      options: {
        project: { kind: 'value', placeholder: 'DIR', summary: 'The project folder (this folder).' },
        'dry-run': { kind: 'switch', summary: 'Check everything and print the plan without a change.' },
        'verify-only': {
          kind: 'switch',
          summary: 'Check the running version; exits 1 when none is healthy.',
        },
        timeout: {
          kind: 'value',
          placeholder: 'SECONDS',
          summary: 'Seconds until the new version has to be ready (60).',
        },
        render: {
          kind: 'value',
          placeholder: 'DIR',
          summary:
            'Write a Dockerfile, a compose file, a Helm chart and a systemd unit into a folder of the project.',
        },
        stop: { kind: 'switch', summary: 'Stop the running version, like "townhall city stop".' },
        json: jsonOption,
      },
      async run({ options, ...context }) {
        const modes = (['dry-run', 'verify-only', 'stop', 'render'] as const).filter(
          (name) => options[name] !== undefined && options[name] !== false,
        );
        if (modes.length > 1) throw new SettingError(`--${modes.join(' and --')} cannot be combined.`);
        const directory = resolve(options.project ?? '.');
        const startMs = readTimeoutMs(options.timeout);
        const output: Output = { ...context, isJson: options.json };
        if (options.render !== undefined) return render(directory, options.render, output);
        if (options['verify-only'])
          return printVerification(await verify(await survey({ directory, env: context.env })), output);
        if (options.stop) return stopCity((await survey({ directory, env: context.env })).folder, output);
        return deployProject(directory, { output, startMs, isDryRun: options['dry-run'] });
      },
    }),
  ],
  notes: ['To operate it: townhall city --help'],
};

interface Output extends CommandContext {
  isJson: boolean;
}

async function deployProject(
  directory: string,
  options: { output: Output; startMs: number; isDryRun: boolean },
): Promise<number> {
  try {
    return await planAndDeploy(directory, options);
  } catch (error) {
    if (!(error instanceof Error) || error instanceof SettingError) throw error;
    // After a failure the operator needs to know whether a version is running.
    const status = await supervisorClient(cityFolder(directory))
      .status()
      .catch(() => null);
    if (status === null || status.version === null) throw error;
    throw new Error(`${error.message}\nVersion ${status.version} is still running; nothing was changed.`, {
      cause: error,
    });
  }
}

async function planAndDeploy(
  directory: string,
  { output, startMs, isDryRun }: { output: Output; startMs: number; isDryRun: boolean },
): Promise<number> {
  const { print, printError, isJson } = output;
  const plan = await planOf(directory, output);
  const printProgress = (line: string): void => (isJson ? printError(line) : print(line));
  for (const line of describePlan(plan)) printProgress(line);
  if (isDryRun) {
    print(isJson ? JSON.stringify({ outcome: 'planned', ...serializePlan(plan) }) : 'Nothing was changed.');
    return 0;
  }
  printProgress('');
  const deployment = await deploy(plan, deployOptions(printProgress, startMs));
  const { url, baseUrl } = deployment;
  if (isJson) {
    const result = { version: deployment.version, url, base_url: baseUrl };
    print(JSON.stringify({ outcome: 'deployed', ...serializePlan(plan), ...result }));
  } else {
    const forUsers = baseUrl === url ? '' : `, for users at ${baseUrl}`;
    print('');
    print(`${plan.declaration.name} ${deployment.version} serves at ${url}${forUsers}`);
    print(`  curl ${url}/health`);
  }
  return 0;
}

const stateWords = { found: 'exists', made: 'will be created', changed: 'will be raised' };

function describePlan({ declaration, services, lines }: Plan): string[] {
  const width = Math.max(...lines.map(({ what }) => what.length)) + 2;
  return [
    `Plan for ${declaration.name} (${declaration.id})`,
    `  ${'services'.padEnd(width)}${services.map(({ id }) => id).join(', ')}`,
    ...lines.map(({ what, state, detail }) => `  ${what.padEnd(width)}${stateWords[state]}: ${detail}`),
  ];
}

function serializePlan({ declaration, services, lines, version: { current, next } }: Plan) {
  return {
    city_id: declaration.id,
    name: declaration.name,
    package_version: current,
    next_version: next,
    services: services.map(({ id }) => id),
    plan: lines,
  };
}

function printVerification(
  { ok, url, version: liveVersion, problem }: Verification,
  { print, printError, isJson }: Output,
): number {
  if (isJson) print(JSON.stringify({ outcome: 'verified', ok, url, version: liveVersion, problem }));
  else if (ok) print(`Healthy: version ${liveVersion} at ${url}.`);
  else printError(`No healthy version serves at ${url}: ${problem}`);
  return ok ? 0 : 1;
}

async function render(project: string, folder: string, { print, isJson }: Output): Promise<number> {
  const declaration = await readDeclaration(project);
  const runner = ownRunner();
  const target = resolve(project, folder);
  const files = renderProject({
    declaration,
    version,
    directory: project,
    folder: target,
    user: userInfo().username,
    command: [runner.command, ...runner.arguments],
  });
  for (const [name, text] of Object.entries(files)) {
    const existing = await readFile(join(target, name), 'utf8').catch(() => null);
    if (existing !== null && existing !== text && !isRendered(existing))
      throw new Error(
        `${join(target, name)} already exists and was not rendered by this command; move it away, or render into another folder.`,
      );
  }
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(target, name)), { recursive: true });
    await writeFile(join(target, name), text);
  }
  if (isJson) print(JSON.stringify({ outcome: 'rendered', directory: target, files: Object.keys(files) }));
  else for (const name of Object.keys(files)) print(join(target, name));
  return 0;
}
