// The part of gpt-tokenizer that the tokenizer's thread calls. Its own types build on the type of every model it knows.
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
