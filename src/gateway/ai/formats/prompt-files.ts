// Files in a prompt of the AI SDK's format, and the parts of a tool's result.
// Versions 3 and 4 of the specification differ in the members of these parts, so the
// contract lists only their types, and their members are checked here.
import { parseDataUrl } from '../media/data-url.ts';
import { invalidMember, readObject, readString } from './translation/members.ts';
import { isRemoteFile } from './translation/file-address.ts';
import type { SpecContent } from './translation/spec-prompt.ts';

type SpecFileData = Extract<SpecContent, { type: 'file' | 'reasoning-file' }>['data'];
type FileData =
  | { type: 'url'; url: URL }
  | { type: 'data'; data: string }
  | Exclude<SpecFileData, string | { type: 'url' }>;

/**
 * Throws a 400 for an invalid URL. In version 3 a string is either base64 data or a URL; base64 never
 * starts like a URL.
 */
export function toFileData(data: SpecFileData, path: string): FileData {
  if (typeof data !== 'string') return data.type === 'url' ? toUrlData(data.url, `${path}.url`) : data;
  const inlineData = parseDataUrl(data);
  if (inlineData !== undefined) return { type: 'data', data: inlineData.data };
  return /^https?:\/\//i.test(data) && URL.canParse(data)
    ? { type: 'url', url: new URL(data) }
    : { type: 'data', data };
}

function toUrlData(url: string, path: string): FileData {
  if (/^data:/i.test(url) && URL.canParse(url)) return toFileData(url, path);
  if (!isRemoteFile(url)) throw invalidMember(path, 'must be an http, https, gs, s3 or data URL');
  return { type: 'url', url: new URL(url) };
}

/**
 * Converts a part of a tool's result to version 4, which merged the types `file-*` and `image-*`
 * into `file`. Throws a 400 for a member that is missing or of the wrong type.
 */
export function toOutputPart(item: unknown, path: string): unknown {
  const part = readObject(item, path);
  checkProviderOptions(part['providerOptions'], `${path}.providerOptions`);
  if (part['type'] === 'text') readString(part['text'], `${path}.text`);
  if (part['type'] === 'text' || part['type'] === 'custom') return part;
  const { type, data: _data, url: _url, fileId: _fileId, ...members } = part;
  for (const name of ['filename', 'mediaType'])
    if (members[name] !== undefined) readString(members[name], `${path}.${name}`);
  if (type === 'file') {
    readString(members['mediaType'], `${path}.mediaType`);
    return { ...part, data: readFileData(part['data'], `${path}.data`) };
  }
  const isImage = readString(type, `${path}.type`).startsWith('image-');
  return {
    mediaType: isImage ? 'image' : 'application/octet-stream',
    ...members,
    type: 'file',
    data: readOlderFileData(part, path),
  };
}

function readFileData(data: unknown, path: string): FileData {
  if (typeof data === 'string') return toFileData(data, path);
  const source = readObject(data, path);
  switch (source['type']) {
    case 'data':
      return { type: 'data', data: readString(source['data'], `${path}.data`) };
    case 'url':
      return toUrlData(readString(source['url'], `${path}.url`), `${path}.url`);
    case 'text':
      return { type: 'text', text: readString(source['text'], `${path}.text`) };
    case 'reference':
      return { type: 'reference', reference: readReference(source['reference'], `${path}.reference`) };
    default:
      throw invalidMember(`${path}.type`, 'must be data, url, text or reference');
  }
}

/**
 * The data of a part of version 3: `file-data`, `image-data`, `file-url`,
 * `image-url`, `file-id` or `image-file-id`.
 */
function readOlderFileData({ type, data, url, fileId }: Record<string, unknown>, path: string): FileData {
  if (type === 'file-data' || type === 'image-data')
    return { type: 'data', data: readString(data, `${path}.data`) };
  if (type === 'file-url' || type === 'image-url') {
    const address = readString(url, `${path}.url`);
    return toUrlData(address, `${path}.url`);
  }
  const reference =
    typeof fileId === 'string' ? { default: fileId } : readReference(fileId, `${path}.fileId`);
  return { type: 'reference', reference };
}

/** The ids that a file has at providers, by the provider's name. */
function readReference(value: unknown, path: string): Record<string, string> {
  const reference = readObject(value, path);
  for (const [name, fileId] of Object.entries(reference)) readString(fileId, `${path}.${name}`);
  return reference as Record<string, string>;
}

function checkProviderOptions(options: unknown, path: string): void {
  if (options === undefined) return;
  for (const [name, members] of Object.entries(readObject(options, path)))
    readObject(members, `${path}.${name}`);
}
