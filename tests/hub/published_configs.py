"""What config.json says in models that many have, as far as it says something of the model."""

BERT = {
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12,
    "num_hidden_layers": 12, "pad_token_id": 0,
    "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2,
    "use_cache": True, "vocab_size": 30522,
}  # fmt: skip
BERT_CHINESE = BERT | {
    "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
    "output_past": True, "vocab_size": 21128,
}  # fmt: skip
ROBERTA = {
    "architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
    "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
    "max_position_embeddings": 514, "model_type": "roberta", "num_attention_heads": 12,
    "num_hidden_layers": 12, "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265,
}  # fmt: skip
DISTILBERT = {
    "activation": "gelu", "architectures": ["DistilBertForMaskedLM"], "attention_dropout": 0.1, "dim": 768,
    "dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02, "max_position_embeddings": 512,
    "model_type": "distilbert", "n_heads": 12, "n_layers": 6, "pad_token_id": 0, "qa_dropout": 0.1,
    "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True,
    "transformers_version": "4.10.0.dev0", "vocab_size": 30522,
}  # fmt: skip
SST2 = DISTILBERT | {
    "architectures": ["DistilBertForSequenceClassification"], "finetuning_task": "sst-2",
    "id2label": {"0": "NEGATIVE", "1": "POSITIVE"}, "label2id": {"NEGATIVE": 0, "POSITIVE": 1},
    "output_past": True,
}  # fmt: skip
MODERNBERT = {
    "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 50281, "classifier_activation": "gelu", "classifier_bias": False,
    "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 50281, "decoder_bias": True,
    "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 50282,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": False,
    "hidden_activation": "gelu", "hidden_size": 768, "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02, "intermediate_size": 1152, "layer_norm_eps": 1e-05, "local_attention": 128,
    "local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": False, "mlp_dropout": 0.0,
    "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 12,
    "num_hidden_layers": 22, "pad_token_id": 50283, "position_embedding_type": "absolute",
    "reference_compile": True, "repad_logits_with_grad": False, "sep_token_id": 50282,
    "sparse_pred_ignore_index": -100, "sparse_prediction": False, "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0", "vocab_size": 50368,
}  # fmt: skip
T5 = {
    "architectures": ["T5ForConditionalGeneration"], "d_ff": 2048, "d_kv": 64, "d_model": 512,
    "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0,
    "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512,
    "num_heads": 8, "num_layers": 6, "output_past": True, "pad_token_id": 0,
    "relative_attention_num_buckets": 32, "vocab_size": 32128,
    "task_specific_params": {"summarization": {"early_stopping": True, "num_beams": 4}},
}  # fmt: skip
T5_1_1 = {
    "architectures": ["T5ForConditionalGeneration"], "d_ff": 1024, "d_kv": 64, "d_model": 512,
    "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0, "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5",
    "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "output_past": True, "pad_token_id": 0,
    "relative_attention_num_buckets": 32, "tie_word_embeddings": False, "vocab_size": 32128,
}  # fmt: skip
SUMMARIES = {"early_stopping": True, "length_penalty": 2.0, "max_length": 142, "min_length": 56,
             "no_repeat_ngram_size": 3, "num_beams": 4}  # fmt: skip
BART = {
    "activation_dropout": 0.1, "activation_function": "gelu", "add_bias_logits": False,
    "add_final_layer_norm": False, "architectures": ["BartModel"], "attention_dropout": 0.1,
    "bos_token_id": 0, "classif_dropout": 0.1, "classifier_dropout": 0.0, "d_model": 768,
    "decoder_attention_heads": 12, "decoder_ffn_dim": 3072, "decoder_layerdrop": 0.0, "decoder_layers": 6,
    "decoder_start_token_id": 2, "dropout": 0.1, "early_stopping": True, "encoder_attention_heads": 12,
    "encoder_ffn_dim": 3072, "encoder_layerdrop": 0.0, "encoder_layers": 6, "eos_token_id": 2,
    "forced_eos_token_id": 2, "forced_bos_token_id": 0, "gradient_checkpointing": False,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "init_std": 0.02,
    "is_encoder_decoder": True, "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
    "max_position_embeddings": 1024, "model_type": "bart", "no_repeat_ngram_size": 3,
    "normalize_before": False, "normalize_embedding": True, "num_beams": 4, "num_hidden_layers": 6,
    "pad_token_id": 1, "scale_embedding": False, "task_specific_params": {"summarization": SUMMARIES},
    "torch_dtype": "float32", "transformers_version": "4.12.0.dev0", "use_cache": True, "vocab_size": 50265,
}  # fmt: skip
BART_CNN = BART | SUMMARIES | {
    "_num_labels": 3, "activation_dropout": 0.0, "architectures": ["BartForConditionalGeneration"],
    "attention_dropout": 0.0, "classif_dropout": 0.0, "d_model": 1024, "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096, "decoder_layers": 12, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096,
    "encoder_layers": 12, "force_bos_token_to_be_generated": True, "num_hidden_layers": 12,
    "output_past": True, "prefix": " ", "vocab_size": 50264,
}  # fmt: skip
MARIAN = {
    "_num_labels": 3, "activation_dropout": 0.0, "activation_function": "swish", "add_bias_logits": False,
    "add_final_layer_norm": False, "architectures": ["MarianMTModel"], "attention_dropout": 0.0,
    "bad_words_ids": [[58100]], "bos_token_id": 0, "classif_dropout": 0.0, "classifier_dropout": 0.0,
    "d_model": 512, "decoder_attention_heads": 8, "decoder_ffn_dim": 2048, "decoder_layerdrop": 0.0,
    "decoder_layers": 6, "decoder_start_token_id": 58100, "decoder_vocab_size": 58101, "dropout": 0.1,
    "encoder_attention_heads": 8, "encoder_ffn_dim": 2048, "encoder_layerdrop": 0.0, "encoder_layers": 6,
    "eos_token_id": 0, "extra_pos_embeddings": 58101, "forced_eos_token_id": 0,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "init_std": 0.02,
    "is_encoder_decoder": True, "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, "max_length": 512,
    "max_position_embeddings": 512, "model_type": "marian", "normalize_before": False,
    "normalize_embedding": False, "num_beams": 6, "num_hidden_layers": 6, "pad_token_id": 58100,
    "scale_embedding": True, "share_encoder_decoder_embeddings": True, "static_position_embeddings": True,
    "transformers_version": "4.22.0.dev0", "use_cache": True, "vocab_size": 58101,
}  # fmt: skip
