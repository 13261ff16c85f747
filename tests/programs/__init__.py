"""Small programs of real models, by field: each is the witness that some rules fire."""

from programs import attention as attention
from programs import convolution as convolution
from programs import decoding as decoding
from programs import diffusion as diffusion
from programs import elementwise as elementwise
from programs import language as language
from programs import linear as linear
from programs import losses as losses
from programs import norms as norms
from programs import recommender as recommender
from programs import recurrent as recurrent
from programs import vision as vision
from programs.program import PROGRAMS as PROGRAMS
from programs.program import Program as Program
