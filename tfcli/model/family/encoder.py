"""An encoder: each token sees all others, and the model says something of each, or of the whole text."""

from tfcli.model.embedding import TokenEmbedding
from tfcli.model.family import Model
from tfcli.model.head import Head
from tfcli.model.parts import Parts
from tfcli.model.stack import Stack
from tfcli.values import Count


class Encoder(Model):
    """embedding -> stack of layers that see both sides -> head  (Devlin et al. 2018, BERT)."""

    family = "encoder"

    def __init__(
        self, embedding: TokenEmbedding, parts: Parts, head: Head, n_layers: Count, recompute: bool = False
    ) -> None:
        super().__init__()
        self.embedding = embedding
        parts = parts._replace(cross_attention=None)
        self.stack = Stack(parts, n_layers, rules=(), recompute=recompute)
        self.head = head
