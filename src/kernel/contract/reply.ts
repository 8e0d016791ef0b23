// A reply without the types of its operation; operation.ts has the exact ones.

export interface AnyReply {
  status: number;
  body?: unknown;
  events?: AsyncIterable<{ data: unknown; event?: string; id?: string }>;
  end?: string;
  content?: Uint8Array | AsyncIterable<Uint8Array>;
  mediaType?: string;
  headers?: Record<string, string>;
}
