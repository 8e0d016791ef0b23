// Reads a catalog document and its signature from a file or an address, within limits of time and size.
import { open } from 'node:fs/promises';
import { isLoopbackHost } from '../../kernel/http/address.ts';
import { SettingError } from '../../kernel/settings.ts';

export const downloadTimeoutMs = 30_000;
/** The built-in catalog has 60 kB. */
export const maximumDocumentBytes = 4 * 1024 * 1024;
const maximumSignatureBytes = 1_024;

export interface CatalogSource {
  /** The file or address, for messages. */
  name: string;
  isFile: boolean;
  readDocument(): Promise<Uint8Array>;
  /** The content of `<source>.sig`. */
  readSignature(): Promise<string>;
}

/**
 * Throws a SettingError for an address that is neither https nor http on this machine. Redirects
 * are refused, because they could lead to another kind of address.
 */
export function catalogSource(source: string, { timeoutMs = downloadTimeoutMs } = {}): CatalogSource {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(source)) return fileSource(source);
  const url = requireAddress(source);
  const signatureUrl = new URL(url);
  signatureUrl.pathname += '.sig';
  const name = withoutCredentials(url);
  return {
    name,
    isFile: false,
    readDocument: () => download(url, name, { timeoutMs, maximumBytes: maximumDocumentBytes }),
    async readSignature() {
      const bounds = { timeoutMs, maximumBytes: maximumSignatureBytes };
      return decode(await download(signatureUrl, withoutCredentials(signatureUrl), bounds));
    },
  };
}

function requireAddress(text: string): URL {
  const url = URL.canParse(text) && !/[\s\p{Cc}\\]/u.test(text) ? new URL(text) : undefined;
  const isAllowed =
    url !== undefined &&
    (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopbackHost(url.host)));
  if (url === undefined || !isAllowed)
    throw new SettingError(
      '--from takes a file or an address with https://, or with http:// on this machine.',
    );
  if (url.username !== '' || url.password !== '')
    throw new SettingError('--from takes an address without a user name and password.');
  return url;
}

function withoutCredentials(url: URL): string {
  return `${url.origin}${url.pathname}`;
}

interface Bounds {
  timeoutMs: number;
  maximumBytes: number;
}

/** The deadline covers the whole body; the size is counted while it arrives. */
async function download(url: URL, name: string, { timeoutMs, maximumBytes }: Bounds): Promise<Uint8Array> {
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const response = await fetch(url, { redirect: 'manual', signal });
    if (response.status !== 200) {
      await response.body?.cancel();
      const hint =
        response.status >= 300 && response.status < 400 ? ' It redirects; set the final address.' : '';
      throw new Error(`${name} answers with the status ${response.status}.${hint}`);
    }
    return await readBounded(response.body ?? [], name, maximumBytes);
  } catch (error) {
    if (signal.aborted)
      throw new Error(`${name} did not answer completely within ${timeoutMs / 1_000} s.`, { cause: error });
    if (error instanceof TypeError)
      throw new Error(`${name} cannot be reached (${causeOf(error)}).`, { cause: error });
    throw error;
  }
}

function causeOf({ cause, message }: TypeError): string {
  return cause instanceof Error ? cause.message : message;
}

async function readBounded(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  name: string,
  maximumBytes: number,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let byteCount = 0;
  for await (const chunk of chunks) {
    byteCount += chunk.byteLength;
    if (byteCount > maximumBytes) throw new Error(`${name} has more than ${maximumBytes} bytes.`);
    parts.push(chunk);
  }
  return Buffer.concat(parts);
}

function fileSource(path: string): CatalogSource {
  return {
    name: path,
    isFile: true,
    readDocument: () => readFileBounded(path, maximumDocumentBytes),
    readSignature: async () => decode(await readFileBounded(`${path}.sig`, maximumSignatureBytes)),
  };
}

async function readFileBounded(path: string, maximumBytes: number): Promise<Uint8Array> {
  const handle = await open(path, 'r');
  // The stream closes the file, even when reading stops early.
  return readBounded(handle.createReadStream() as AsyncIterable<Uint8Array>, path, maximumBytes);
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}
