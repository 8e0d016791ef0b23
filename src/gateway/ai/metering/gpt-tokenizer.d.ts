// Types for the part of gpt-tokenizer that the tokenizer thread calls. The package's own types also contain a
// type for every model that it knows.
declare module 'gpt-tokenizer/encodingParams/constants' {
  export const CL100K_TOKEN_SPLIT_REGEX: RegExp;
  export const O200K_TOKEN_SPLIT_REGEX: RegExp;
}

declare module 'gpt-tokenizer/encoding/cl100k_base' {
  export function countTokens(text: string, options: { disallowedSpecial: Set<string> }): number;
}

declare module 'gpt-tokenizer/encoding/o200k_base' {
  export function countTokens(text: string, options: { disallowedSpecial: Set<string> }): number;
}
