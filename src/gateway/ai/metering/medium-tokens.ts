// The tokens of an image, audio, video or file of a request: the most that a provider can count,
// and the usual number.
import { billableSeconds } from '../media/billable-audio.ts';
import { parseDataUrl } from '../media/data-url.ts';
import { videoSeconds } from '../media/video-duration.ts';
import type { MediumKind, MediumSource } from './media-parts.ts';
import { countPdfPages, type PdfBudget } from './pdf-pages.ts';

/** The tokens of one medium. */
export interface MediumTokens {
  /** The upper bound. */
  most: number;
  /** The estimate that is charged when the provider reports no usage. */
  usual: number;
}

// The most that any provider of the catalog counts for one image: tiles and patches at the
// finest detail come to a few thousand, and to ten thousand when an image keeps its size. Usual
// images count 1,000 to 2,000.
const image: MediumTokens = { most: 16_384, usual: 2_048 };
// A provider may count a page of a file as an image and as text.
const page: MediumTokens = { most: 16_384, usual: 2_048 };
// Content at a URL, or stored by the provider, is of unknown length. Most models have a smaller context
// window, which then becomes the bound.
export const unknownMedium: MediumTokens = { most: 262_144, usual: 32_768 };
// Google counts 32 tokens per second, OpenAI 10.
const audioTokensPerSecond: MediumTokens = { most: 50, usual: 32 };
// The slowest codecs in use have 750 bytes per second, which is 15 bytes per token at 50 tokens per second.
// About half of that leaves a margin.
const audioBytesPerToken = 8;
// Google counts 258 tokens per second for one frame and 32 for the audio.
const videoTokensPerSecond: MediumTokens = { most: 400, usual: 300 };
// A video of 100 kbit/s at 300 tokens a second.
const videoBytesPerToken = 40;
// A PDF of 50 kB per page.
const fileBytesPerToken = 24;
const textBytesPerToken = 4;

/** What the content of a medium reveals about it. */
export interface Medium {
  kind: MediumKind;
  /**
   * The kind of medium that a provider may read a file as, by the type of its data URL or by its
   * first bytes.
   */
  readAs: MediumKind | undefined;
  mediaType: string | undefined;
  /** Undefined when the part has a URL or an id instead of data. */
  base64: string | undefined;
}

/** Determines the kinds as which a provider may read the medium, and extracts its base64 data. */
export function readMedium({ kind, text, isData, mediaType: declared }: MediumSource): Medium {
  const inlineData = parseDataUrl(text);
  const isInline = inlineData !== undefined || (isData && !/^(?:https?|data):/i.test(text));
  const mediaType = (declared ?? inlineData?.mediaType)?.toLowerCase();
  const data = isInline ? (inlineData?.data ?? text) : undefined;
  const base64 = data !== undefined && isBase64(data) ? data : undefined;
  return {
    kind: kindOf(kind, { declared, mediaType }),
    readAs: playableKind(mediaType, base64),
    mediaType,
    base64,
  };
}

// Node's decoder skips all other characters, so a string with many of them decodes to too few bytes. The
// margin of 10% allows line breaks: MIME has 2 in 78 characters. Any other string counts as text.
function isBase64(data: string): boolean {
  return Buffer.from(data, 'base64').length >= Math.floor(data.length * 0.75 * 0.9) - 2;
}

/** Detects audio and video, whose tokens depend on the playing time and not on the bytes. */
function playableKind(mediaType: string | undefined, base64: string | undefined): MediumKind | undefined {
  const head = Buffer.from(base64?.slice(0, 64) ?? '', 'base64');
  if (videoHeads.some(({ at, bytes }) => head.subarray(at, at + bytes.length).equals(bytes))) return 'video';
  const family = mediaType?.split('/')[0];
  return family === 'audio' || family === 'video' ? family : undefined;
}

// MP4 and QuickTime, WebM and Matroska, AVI, FLV, MPEG program streams.
const videoHeads = [
  { at: 4, bytes: Buffer.from('ftyp', 'latin1') },
  { at: 4, bytes: Buffer.from('moov', 'latin1') },
  { at: 0, bytes: Buffer.from([0x1a, 0x45, 0xdf, 0xa3]) },
  { at: 8, bytes: Buffer.from('AVI ', 'latin1') },
  { at: 0, bytes: Buffer.from('FLV', 'latin1') },
  { at: 0, bytes: Buffer.from([0, 0, 1, 0xba]) },
];

// Providers read a part by its media type, whatever the type of the part: a PDF in `image_url` is a file of
// many pages. A file part becomes another kind only by a media type that a member declares, since another
// kind may count fewer tokens than the file has bytes.
function kindOf(
  kind: MediumKind,
  { declared, mediaType }: { declared: string | undefined; mediaType: string | undefined },
): MediumKind {
  const family = (kind === 'file' ? declared?.toLowerCase() : mediaType)?.split('/')[0];
  if (family === undefined || family === '') return kind;
  return family === 'image' || family === 'audio' || family === 'video' ? family : 'file';
}

/** The tokens of the medium. Subtracts the work of counting PDF pages from `budget`. */
export function tokensOfMedium(medium: Medium, budget: PdfBudget): MediumTokens {
  const { kind, readAs } = medium;
  const tokens = tokensOfKind(medium, budget);
  if (readAs === undefined || kind !== 'file') return tokens;
  // Some providers play such a file and others read its bytes, so the higher count is used.
  const playedTokens = tokensOfKind({ ...medium, kind: readAs }, budget);
  return {
    most: Math.max(tokens.most, playedTokens.most),
    usual: Math.max(tokens.usual, playedTokens.usual),
  };
}

function tokensOfKind({ kind, mediaType, base64 }: Medium, budget: PdfBudget): MediumTokens {
  if (kind === 'image') return image;
  if (base64 === undefined) return unknownMedium;
  const bytes = Math.ceil((base64.length * 3) / 4);
  if (kind === 'audio') return audioTokens(base64, bytes);
  if (kind === 'video') return videoTokens(Buffer.from(base64, 'base64'));
  // A byte of a file is never more than one token; rendered pages count in addition to their text.
  if (mediaType?.startsWith('text/') === true && !isPdf(base64))
    return { most: bytes, usual: Math.ceil(bytes / textBytesPerToken) };
  return fileTokens(Buffer.from(base64, 'base64'), mediaType, budget);
}

// A byte is at most one token, but a video of few frames has fewer bytes than tokens.
function videoTokens(content: Buffer): MediumTokens {
  const seconds = videoSeconds(content);
  const { most, usual } = videoTokensPerSecond;
  return {
    most: Math.max(
      content.length,
      image.most,
      seconds === null ? unknownMedium.most : Math.ceil(seconds * most),
    ),
    usual: Math.max(
      seconds === null ? Math.ceil(content.length / videoBytesPerToken) : Math.ceil(seconds * usual),
      image.usual,
    ),
  };
}

function audioTokens(base64: string, bytes: number): MediumTokens {
  const seconds = billableSeconds(Buffer.from(base64, 'base64'));
  const { most, usual } = audioTokensPerSecond;
  if (seconds === null)
    return {
      most: Math.ceil(bytes / audioBytesPerToken),
      usual: Math.ceil((bytes / audioBytesPerToken) * (usual / most)),
    };
  return { most: Math.ceil(seconds * most), usual: Math.ceil(seconds * usual) };
}

// The PDF header may be anywhere in the first 1,024 bytes.
function isPdf(base64: string): boolean {
  return Buffer.from(base64.slice(0, 1_368), 'base64').includes('%PDF');
}

// The magic number of ZIP files, to which DOCX, XLSX and PPTX belong. Their uncompressed text may be a
// thousand times longer than the file, so their length counts as unknown.
const zip = Buffer.from('PK\x03\x04', 'latin1');

function fileTokens(content: Buffer, mediaType: string | undefined, budget: PdfBudget): MediumTokens {
  const bytes = content.length;
  if (content.subarray(0, zip.length).equals(zip)) return unknownMedium;
  // The name may be anywhere: to count the pages of a file that is no PDF can only raise the bound.
  const isPdfFile = mediaType === 'application/pdf' || content.includes('%PDF');
  const pages = isPdfFile ? countPdfPages(content, budget) : { most: 1, usual: 1 };
  return {
    most: Math.max(bytes, page.most * pages.most),
    usual: Math.max(Math.ceil(bytes / fileBytesPerToken), page.usual * pages.usual),
  };
}
