// What the rendered files share: their options, their first line, and values that appear in several files.
import { posix, relative, sep } from 'node:path';
import type { Declaration } from './declaration.ts';

export interface RenderOptions {
  declaration: Declaration;
  /** The version of this installation. */
  version: string;
  /** The project's folder. */
  directory: string;
  /** The folder of the rendered files. */
  folder: string;
  /** The user that the unit runs as. */
  user: string;
  /** The command with which the unit runs `townhall`. */
  command: readonly string[];
}

/** In the first lines of each rendered file; `--render` overwrites only files that contain it. */
export const signature = 'Rendered by "townhall deploy --render"';
export const notice = `${signature}.`;

/** Gateways and agents may take up to 30 seconds to stop. */
export const stopSeconds = 40;
export const agentPort = 5314;
/** The default base image: Debian with Node and the user "node". */
export const defaultBaseImage = 'node:24-bookworm-slim';

/**
 * The name of the image and the chart: a Kubernetes label, which must begin and end with a letter or a digit.
 * The declared name begins with one, in ASCII.
 */
export function labelOf({ name }: Declaration): string {
  return name
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/-$/, '');
}

/** The npm package that the image installs by default. */
export function townhallPackage(version: string): string {
  return `townhall@${version}`;
}

/** Relative to the project's folder, with slashes on every platform. */
export function dockerfilePath({ directory, folder }: RenderOptions): string {
  return posix.join(...relative(directory, folder).split(sep), 'Dockerfile');
}

/** Volumes for the gateway's data, and for declared storage at the path that the project uses. */
export function volumesOf({ deployment }: Declaration): { name: string; path: string }[] {
  const storage = { name: 'storage', path: '/city/.townhall/storage' };
  return [{ name: 'data', path: '/data' }, ...(deployment.resources.storage === undefined ? [] : [storage])];
}

/** A string in double quotes, in the common syntax of YAML and JSON. */
export function quote(text: string): string {
  return JSON.stringify(text);
}

/**
 * A program for a health check inside the image, which has Node and no curl. `url` is a JavaScript
 * expression.
 */
export function healthProgram(url: string): string {
  return `fetch(${url}).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))`;
}
